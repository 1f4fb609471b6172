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

// New returns the loop that reconciles ReplicaSets.
func New(deps controller.Deps) controller.Loop {
	l := newLoop(deps, deps.Informers.Apps().V1().ReplicaSets().Informer(), fromReplicaSet)
	owned.Index(l.sets)
	return controller.Loop{Name: "replicaset-controller", QueueName: "replicaset", Reconcile: l.reconcile,
		Watch: watch(l, "ReplicaSet", &appsv1.ReplicaSet{}, func(rs *appsv1.ReplicaSet) *metav1.LabelSelector { return rs.Spec.Selector })}
}

// NewReplicationController returns the loop that reconciles ReplicationControllers.
func NewReplicationController(deps controller.Deps) controller.Loop {
	l := newLoop(deps, deps.Informers.Core().V1().ReplicationControllers().Informer(), fromReplicationController)
	return controller.Loop{Name: "replicationcontroller-controller", ServiceAccount: "replication-controller", EventSource: "replication-controller", QueueName: "replicationmanager", Reconcile: l.reconcile,
		Watch: watch(l, "ReplicationController", &corev1.ReplicationController{}, func(rc *corev1.ReplicationController) *metav1.LabelSelector {
			return &metav1.LabelSelector{MatchLabels: rc.Spec.Selector}
		})}
}

// loop reads the caches for one of the two kinds.
type loop struct {
	sets         cache.SharedIndexInformer
	pods         cache.SharedIndexInformer
	from         func(obj any) (set, bool)
	statusWrites statusLimiter
}

func newLoop(deps controller.Deps, sets cache.SharedIndexInformer, from func(any) (set, bool)) *loop {
	l := &loop{sets: sets, pods: deps.Informers.Core().V1().Pods().Informer(), from: from}
	owned.Index(l.pods)
	return l
}

// watch returns what a loop watches: sets, and pods. A namespace may hold thousands of orphan pods and hundreds of sets: a reconcile of a set must
// not go through all those pods, nor a new pod through all those sets.
func watch[T controller.Object](l *loop, kind string, empty T, selector func(T) *metav1.LabelSelector) []controller.Watch {
	owned.IndexSelectors(l.sets, selector)
	return []controller.Watch{{Informer: l.sets, Type: empty}, {Informer: l.pods, Type: &corev1.Pod{}, Keys: func(before, after metav1.Object) []controller.Key {
		return podKeys(kind, before, after, func(pod metav1.Object) []controller.Key { return owned.Selecting(l.sets.GetIndexer(), selector, pod) })
	}}}
}

func (l *loop) reconcile(key controller.Key, now time.Time) controller.Decision {
	obj, exists, err := l.sets.GetStore().GetByKey(key.String())
	if err != nil || !exists {
		l.statusWrites.forget(key)
		return controller.Nothing // its pods are left to the garbage collector
	}
	s, ok := l.from(obj)
	if !ok {
		return controller.Nothing
	}
	pods := l.pods.GetIndexer()
	decision := decide(observed{
		set:  s,
		wait: l.statusWrites.wait(key, now),
		pods: owned.By[*corev1.Pod](pods, s.GetUID()),
		strays: func() []*corev1.Pod {
			return owned.Orphans[*corev1.Pod](pods, s.GetNamespace(), s.selector)
		},
		taken: func(name string) bool {
			_, exists, err := pods.GetByKey(s.GetNamespace() + "/" + name)
			return exists && err == nil
		},
		related: func() []*corev1.Pod { return l.related(s) },
	}, now)
	if decision.Then == nil && len(decision.Actions) > 0 {
		l.statusWrites.wrote(key, now)
	}
	return decision
}

// related returns the pods of all sets that have the same controller, as the ReplicaSets of a Deployment do.
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

// podKeys returns the sets that a change of a pod concerns, if it matters to any.
func podKeys(kind string, before, after metav1.Object, selecting func(metav1.Object) []controller.Key) []controller.Key {
	if before != nil && after != nil && !matters(before, after) {
		return nil
	}
	return owned.Keys(kind, before, after, selecting)
}

// matters reports whether a change of a pod may change a set's decision. Most changes do not: that it was bound, or that an image was pulled.
func matters(before, after metav1.Object) bool {
	was, ok := before.(*corev1.Pod)
	is, too := after.(*corev1.Pod)
	if !ok || !too {
		return true
	}
	wasSince, wasReady := owned.ReadySince(was)
	isSince, isReady := owned.ReadySince(is)
	return was.UID != is.UID || wasReady != isReady || !wasSince.Equal(&isSince) || owned.Active(was) != owned.Active(is) || owned.Terminal(was) != owned.Terminal(is) ||
		!maps.Equal(was.Labels, is.Labels) || !equality.Semantic.DeepEqual(was.OwnerReferences, is.OwnerReferences)
}
