// Package daemonset runs a pod of a template on every node that it may run on. Pods are bound by the scheduler like all others, but each is made
// for one node, which its node affinity names.
//
// A look first sees to the history of the template (history.go), then to every node (nodes.go), then, if that leaves nothing to do, to pods of
// an old template (rolling.go), and reports (status.go). Which nodes a pod may run on is asked of package scheduling, as the scheduler does.
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

// A pod that fails on a node is replaced at once. If pods keep failing there, the failed one stays for a while first, twice as long each time.
const (
	firstStay   = time.Second
	longestStay = 15 * time.Minute
	forgetEvery = time.Minute
)

// New makes the loop. Its keys are DaemonSets.
func New(deps controller.Deps) controller.Loop {
	sets, revisions := deps.Informers.Apps().V1().DaemonSets(), deps.Informers.Apps().V1().ControllerRevisions().Informer()
	nodes, pods := deps.Informers.Core().V1().Nodes(), deps.Informers.Core().V1().Pods().Informer()
	owned.Index(pods)
	owned.Index(revisions)
	owned.IndexSelectors(sets.Informer(), selectorOf)
	l := &loop{sets: sets.Lister(), indexed: sets.Informer().GetIndexer(), nodes: nodes.Lister(), pods: pods.GetIndexer(), revisions: revisions.GetIndexer(),
		failing: flowcontrol.NewBackOff(firstStay, longestStay), derived: map[types.UID]*derived{}}
	return controller.Loop{
		Name: "daemonset-controller", Account: "daemon-set-controller", Queue: "daemonset",
		Watch: []controller.Watch{
			{Informer: sets.Informer(), Of: &appsv1.DaemonSet{}, Keys: l.keysOfSet},
			{Informer: revisions, Of: &appsv1.ControllerRevision{}, Keys: l.keysOfRevision},
			{Informer: pods, Of: &corev1.Pod{}, Keys: l.keysOfOwned},
			{Informer: nodes.Informer(), Of: &corev1.Node{}, Keys: l.keysOfNode},
		},
		Look: l.look,
		Run: func(ctx context.Context, _ controller.Do) {
			tick := time.NewTicker(forgetEvery)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					l.failing.GC()
				}
			}
		},
	}
}

type loop struct {
	sets      appslisters.DaemonSetLister
	indexed   cache.Indexer // of the same DaemonSets
	nodes     corelisters.NodeLister
	pods      cache.Indexer
	revisions cache.Indexer
	// failing is where pods keep failing. It only slows things down: a loop that starts knows of none.
	failing *flowcontrol.Backoff

	mu      sync.Mutex
	derived map[types.UID]*derived
}

// derived is what follows from a DaemonSet's template.
type derived struct {
	generation int64
	pod        *scheduling.Pod // as it is on any node
	patch      []byte          // what its revision says
}

func selectorOf(set *appsv1.DaemonSet) *metav1.LabelSelector { return set.Spec.Selector }

// of returns what follows from a DaemonSet's template.
func (l *loop) of(set *appsv1.DaemonSet) (*derived, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.derived[set.UID]; d != nil && d.generation == set.Generation {
		return d, nil
	}
	patch, err := patchOf(&set.Spec.Template)
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

// keysOfOwned finds the DaemonSets that a pod's or a revision's change concerns.
func (l *loop) keysOfOwned(before, after metav1.Object) []controller.Key {
	return owned.Keys(daemonSetKind.Kind, before, after, func(obj metav1.Object) []controller.Key {
		return owned.Selecting(l.indexed, selectorOf, obj)
	})
}

// keysOfRevision finds the DaemonSets that a revision's change concerns. One that somebody adds and that says what another says already is let
// be until something else happens to the DaemonSet, as upstream does: people who make revisions by hand would find them gone at once.
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

// keysOfNode finds the DaemonSets to which a node has become another: their pod may run there now, or may not any more.
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
		d, err := l.of(set)
		if err != nil {
			continue
		}
		if fits(d.pod, was) != fits(d.pod, is) || set.Status.NumberMisscheduled > 0 {
			keys = append(keys, controller.KeyOf(set))
		}
	}
	return keys
}

// fit is how a pod fares on a node: whether it should run there, and whether it may stay if it does.
type fit struct{ wanted, stays bool }

func fits(pod *scheduling.Pod, node *corev1.Node) fit {
	if node == nil {
		return fit{}
	}
	wanted, stays := scheduling.OnDaemonNode(pod, node)
	return fit{wanted, stays}
}

func (l *loop) look(key controller.Key, now time.Time) controller.Decision {
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
		return controller.Nothing // what it owned may be going or staying: nothing can be said of it
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return controller.Nothing // it will not get better
	}
	alive := owned.Alive(set, func(ctx context.Context, c *client.Client) (metav1.Object, error) {
		return c.Kubernetes().AppsV1().DaemonSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
	})
	pods := owned.Claim[*corev1.Pod](l.pods, set, daemonSetKind, selector, alive)
	revisions := owned.Claim[*appsv1.ControllerRevision](l.revisions, set, daemonSetKind, selector, alive)
	if claims := append(pods.Actions, revisions.Actions...); len(claims) > 0 {
		return controller.Decision{Actions: claims} // their changes have the set looked at again
	}
	d, err := l.of(set)
	if err != nil {
		return controller.Decision{Err: err}
	}
	nodes, err := l.nodes.List(labels.Everything())
	if err != nil {
		return controller.Decision{Err: err}
	}
	return decide(observed{set: set, derived: d, pods: pods.Owned, revisions: revisions.Owned, nodes: nodes, failing: l.failing,
		taken: func(name string) bool {
			_, there, err := l.pods.GetByKey(key.Namespace + "/" + name)
			return there || err != nil
		},
		revision: func(name string) *appsv1.ControllerRevision {
			obj, _, err := l.revisions.GetByKey(key.Namespace + "/" + name)
			if r, ok := obj.(*appsv1.ControllerRevision); ok && err == nil {
				return r
			}
			return nil
		}}, now)
}

// failingKey is what pods of a DaemonSet fail as on a node. A new template gets a new chance.
func failingKey(set *appsv1.DaemonSet, node string) string {
	return fmt.Sprintf("%s/%d/%s", set.UID, set.Status.ObservedGeneration, node)
}
