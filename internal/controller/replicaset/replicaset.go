package replicaset

import (
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

// New makes the loop that runs ReplicaSets.
func New(deps controller.Deps) controller.Loop {
	l := newLoop(deps, deps.Informers.Apps().V1().ReplicaSets().Informer(), fromReplicaSet)
	owned.Index(l.sets)
	return controller.Loop{Name: "replicaset-controller", Queue: "replicaset", Watch: l.watch("ReplicaSet", &appsv1.ReplicaSet{}), Look: l.look}
}

// NewReplicationController makes the loop that runs ReplicationControllers.
func NewReplicationController(deps controller.Deps) controller.Loop {
	l := newLoop(deps, deps.Informers.Core().V1().ReplicationControllers().Informer(), fromReplicationController)
	return controller.Loop{Name: "replicationcontroller-controller", Account: "replication-controller", Source: "replication-controller", Queue: "replicationmanager",
		Watch: l.watch("ReplicationController", &corev1.ReplicationController{}), Look: l.look}
}

// loop reads the caches for one of the two kinds.
type loop struct {
	sets  cache.SharedIndexInformer
	pods  cache.SharedIndexInformer
	from  func(obj any) (set, bool)
	paces paces
}

func newLoop(deps controller.Deps, sets cache.SharedIndexInformer, from func(any) (set, bool)) *loop {
	l := &loop{sets: sets, pods: deps.Informers.Core().V1().Pods().Informer(), from: from}
	owned.Index(l.pods)
	indexOrphans(l.pods)
	indexSelectors(l.sets, from)
	return l
}

func (l *loop) watch(kind string, of controller.Object) []controller.Watch {
	return []controller.Watch{{Informer: l.sets, Of: of}, {Informer: l.pods, Of: &corev1.Pod{}, Keys: func(before, after metav1.Object) []controller.Key {
		return podKeys(kind, before, after, l.selecting)
	}}}
}

func (l *loop) look(key controller.Key, now time.Time) controller.Decision {
	obj, exists, err := l.sets.GetStore().GetByKey(key.String())
	if err != nil || !exists {
		l.paces.forget(key)
		return controller.Nothing // its pods are the garbage collector's
	}
	s, ok := l.from(obj)
	if !ok {
		return controller.Nothing
	}
	pods := l.pods.GetIndexer()
	decision := decide(observed{
		set:  s,
		wait: l.paces.wait(key, now),
		pods: owned.By[*corev1.Pod](pods, s.GetUID()),
		strays: func() []*corev1.Pod {
			return orphans(pods, s.GetNamespace(), s.selector)
		},
		taken: func(name string) bool {
			_, there, err := pods.GetByKey(s.GetNamespace() + "/" + name)
			return there && err == nil
		},
		related: func() []*corev1.Pod { return l.related(s) },
	}, now)
	if decision.Then == nil && len(decision.Actions) > 0 {
		l.paces.told(key, now)
	}
	return decision
}

// related are the pods of all sets that have the same controller, as the ReplicaSets of a Deployment do.
func (l *loop) related(s set) []*corev1.Pod {
	by := metav1.GetControllerOfNoCopy(s)
	if by == nil {
		return nil
	}
	var pods []*corev1.Pod
	for _, sibling := range owned.By[metav1.Object](l.sets.GetIndexer(), by.UID) {
		pods = append(pods, owned.By[*corev1.Pod](l.pods.GetIndexer(), sibling.GetUID())...)
	}
	return pods
}

// podKeys says which sets a change of a pod concerns: the one that controls it, or did; for a pod that nobody controls, those that might
// adopt it.
func podKeys(kind string, before, after metav1.Object, selecting func(metav1.Object) []controller.Key) []controller.Key {
	var keys []controller.Key
	controls := func(pod metav1.Object) *metav1.OwnerReference {
		if pod == nil {
			return nil
		}
		return metav1.GetControllerOfNoCopy(pod)
	}
	was, is := controls(before), controls(after)
	if was != nil && was.Kind == kind && (is == nil || is.UID != was.UID) {
		keys = append(keys, controller.Key{Namespace: before.GetNamespace(), Name: was.Name})
	}
	switch {
	case after == nil, before != nil && !matters(before, after):
		return keys
	case is != nil:
		if is.Kind == kind {
			keys = append(keys, controller.Key{Namespace: after.GetNamespace(), Name: is.Name})
		}
	case after.GetDeletionTimestamp() != nil: // nobody adopts it any more
	case before == nil, was != nil, !maps.Equal(before.GetLabels(), after.GetLabels()):
		keys = append(keys, selecting(after)...)
	}
	return keys
}

// matters says whether a set may decide otherwise because of a change. Most changes of a pod are of no consequence: a node it was given, a container
// that was pulled.
func matters(before, after metav1.Object) bool {
	was, ok := before.(*corev1.Pod)
	is, too := after.(*corev1.Pod)
	if !ok || !too {
		return true
	}
	wasSince, wasReady := readySince(was)
	isSince, isReady := readySince(is)
	return was.UID != is.UID || wasReady != isReady || !wasSince.Equal(&isSince) || active(was) != active(is) || ended(was) != ended(is) ||
		!maps.Equal(was.Labels, is.Labels) || !equality.Semantic.DeepEqual(was.OwnerReferences, is.OwnerReferences)
}
