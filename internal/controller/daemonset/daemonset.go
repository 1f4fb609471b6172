package daemonset

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/owned"
	"skiff/internal/scheduling"
)

var daemonSetKind = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

// A pod that fails on a node is replaced at once. If pods keep failing there, the next failed pod is deleted only after a back-off, which doubles
// each time.
const (
	firstBackoff   = time.Second
	maxBackoff     = 15 * time.Minute
	backoffGCEvery = time.Minute
)

// New returns the loop. Its keys are DaemonSets.
func New(deps controller.Deps) controller.Loop {
	sets, revisions := deps.Informers.Apps().V1().DaemonSets(), deps.Informers.Apps().V1().ControllerRevisions().Informer()
	nodes, pods := deps.Informers.Core().V1().Nodes(), deps.Informers.Core().V1().Pods().Informer()
	owned.Index(pods)
	owned.Index(revisions)
	owned.IndexSelectors(sets.Informer(), selectorOf)
	l := &loop{sets: sets.Lister(), setIndex: sets.Informer().GetIndexer(), nodes: nodes.Lister(), pods: pods.GetIndexer(), revisions: revisions.GetIndexer(),
		failedPods: flowcontrol.NewBackOff(firstBackoff, maxBackoff), derived: map[types.UID]*derived{}}
	return controller.Loop{
		Name: "daemonset-controller", ServiceAccount: "daemon-set-controller", QueueName: "daemonset",
		Watch: []controller.Watch{
			{Informer: sets.Informer(), Type: &appsv1.DaemonSet{}, Keys: l.keysOfSet},
			{Informer: revisions, Type: &appsv1.ControllerRevision{}, Keys: l.keysOfRevision},
			{Informer: pods, Type: &corev1.Pod{}, Keys: l.keysOfOwned},
			{Informer: nodes.Informer(), Type: &corev1.Node{}, Keys: l.keysOfNode},
		},
		Reconcile: l.reconcile,
		Run: func(ctx context.Context, _ controller.Do) {
			tick := time.NewTicker(backoffGCEvery)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					l.failedPods.GC()
				}
			}
		},
	}
}

type loop struct {
	sets      appslisters.DaemonSetLister
	setIndex  cache.Indexer // of the same DaemonSets
	nodes     corelisters.NodeLister
	pods      cache.Indexer
	revisions cache.Indexer
	// failedPods holds the back-offs of nodes where pods keep failing. It is not observed state, but only delays: a new loop starts without any.
	failedPods *flowcontrol.Backoff

	mu      sync.Mutex
	derived map[types.UID]*derived
}

// derived holds what is computed from a DaemonSet's template, once per generation.
type derived struct {
	generation int64
	pod        *scheduling.Pod // the pod without a node
	patch      []byte          // content of the template's ControllerRevision
}

func selectorOf(set *appsv1.DaemonSet) *metav1.LabelSelector { return set.Spec.Selector }

// derive returns what is computed from a DaemonSet's template.
func (l *loop) derive(set *appsv1.DaemonSet) (*derived, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.derived[set.UID]; d != nil && d.generation == set.Generation {
		return d, nil
	}
	patch, err := owned.TemplatePatch(&set.Spec.Template)
	if err != nil {
		return nil, err
	}
	template := withTolerations(&set.Spec.Template)
	d := &derived{generation: set.Generation, patch: patch, pod: scheduling.NewPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Labels: template.Labels}, Spec: template.Spec})}
	l.derived[set.UID] = d
	return d, nil
}

func (l *loop) keysOfSet(before, after metav1.Object) []controller.Key {
	if after == nil {
		l.mu.Lock()
		delete(l.derived, before.GetUID())
		l.mu.Unlock()
		return []controller.Key{controller.KeyOf(before)}
	}
	return []controller.Key{controller.KeyOf(after)}
}

// keysOfOwned returns the DaemonSets that a change of a pod or a revision concerns.
func (l *loop) keysOfOwned(before, after metav1.Object) []controller.Key {
	return owned.Keys(daemonSetKind.Kind, before, after, func(obj metav1.Object) []controller.Key {
		return owned.Selecting(l.setIndex, selectorOf, obj)
	})
}

// keysOfRevision returns the DaemonSets that a change of a revision concerns. A new revision with the same content as another is left alone until
// the DaemonSet is reconciled for another reason, as upstream does: revisions created by hand would otherwise be deleted at once.
func (l *loop) keysOfRevision(before, after metav1.Object) []controller.Key {
	if added, ok := after.(*appsv1.ControllerRevision); ok && before == nil {
		if owner := metav1.GetControllerOfNoCopy(added); owner != nil {
			for _, r := range owned.By[*appsv1.ControllerRevision](l.revisions, owner.UID) {
				if r.UID != added.UID && bytes.Equal(r.Data.Raw, added.Data.Raw) {
					return nil
				}
			}
		}
	}
	return l.keysOfOwned(before, after)
}

// keysOfNode returns the DaemonSets whose pod may run on a node only before or only after a change of it.
func (l *loop) keysOfNode(before, after metav1.Object) []controller.Key {
	was, _ := before.(*corev1.Node)
	is, _ := after.(*corev1.Node)
	if was != nil && is != nil && maps.Equal(was.Labels, is.Labels) && equality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints) {
		return nil
	}
	sets, err := l.sets.List(labels.Everything())
	if err != nil {
		return nil
	}
	var keys []controller.Key
	for _, set := range sets {
		d, err := l.derive(set)
		if err != nil {
			continue
		}
		if fits(d.pod, was) != fits(d.pod, is) || set.Status.NumberMisscheduled > 0 {
			keys = append(keys, controller.KeyOf(set))
		}
	}
	return keys
}

// fit reports whether a pod should run on a node, and whether it may stay there if it does.
type fit struct{ shouldRun, mayStay bool }

func fits(pod *scheduling.Pod, node *corev1.Node) fit {
	if node == nil {
		return fit{}
	}
	shouldRun, mayStay := scheduling.OnDaemonNode(pod, node)
	return fit{shouldRun, mayStay}
}

func (l *loop) reconcile(key controller.Key, now time.Time) controller.Decision {
	set, err := l.sets.DaemonSets(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return controller.Nothing
	}
	if err != nil {
		return controller.Decision{Err: err}
	}
	if equality.Semantic.DeepEqual(set.Spec.Selector, &metav1.LabelSelector{}) {
		return controller.Decision{Actions: []controller.Action{
			controller.Event(set, corev1.EventTypeWarning, "SelectingAll", "This daemon set is selecting all pods. A non-empty selector is required.")}}
	}
	if set.DeletionTimestamp != nil {
		return controller.Nothing // its pods are deleted or orphaned by the garbage collector: no count of them would hold
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return controller.Nothing // an invalid selector stays invalid until the spec changes
	}
	canAdopt := owned.CanAdopt(set, func(ctx context.Context, c *client.Client) (metav1.Object, error) {
		return c.Kubernetes().AppsV1().DaemonSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
	})
	pods := owned.Claim[*corev1.Pod](l.pods, set, daemonSetKind, selector, canAdopt)
	revisions := owned.Claim[*appsv1.ControllerRevision](l.revisions, set, daemonSetKind, selector, canAdopt)
	if claims := append(pods.Actions, revisions.Actions...); len(claims) > 0 {
		return controller.Decision{Actions: claims} // the changes requeue the set
	}
	d, err := l.derive(set)
	if err != nil {
		return controller.Decision{Err: err}
	}
	nodes, err := l.nodes.List(labels.Everything())
	if err != nil {
		return controller.Decision{Err: err}
	}
	return decide(observed{set: set, derived: d, pods: pods.Owned, revisions: revisions.Owned, nodes: nodes, failedPods: l.failedPods,
		taken: func(name string) bool {
			_, exists, err := l.pods.GetByKey(key.Namespace + "/" + name)
			return exists || err != nil
		},
		revision: func(name string) *appsv1.ControllerRevision {
			obj, _, err := l.revisions.GetByKey(key.Namespace + "/" + name)
			if r, ok := obj.(*appsv1.ControllerRevision); ok && err == nil {
				return r
			}
			return nil
		}}, now)
}

// backoffKey returns the back-off key of a DaemonSet's pods on a node. A new template starts without back-off.
func backoffKey(set *appsv1.DaemonSet, node string) string {
	return fmt.Sprintf("%s/%d/%s", set.UID, set.Status.ObservedGeneration, node)
}
