package statefulset

import (
	"bytes"
	"context"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/catalog/pod"
	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

var (
	statefulSetKind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")
	podKind         = corev1.SchemeGroupVersion.WithKind("Pod")
)

// New returns the loop. Its keys are StatefulSets.
func New(deps controller.Deps) controller.Loop {
	sets, revisions := deps.Informers.Apps().V1().StatefulSets(), deps.Informers.Apps().V1().ControllerRevisions().Informer()
	pods, claims := deps.Informers.Core().V1().Pods().Informer(), deps.Informers.Core().V1().PersistentVolumeClaims().Informer()
	owned.Index(pods)
	owned.Index(revisions)
	owned.IndexSelectors(sets.Informer(), selectorOf)
	l := &loop{sets: sets.Lister(), setIndex: sets.Informer().GetIndexer(), pods: pods.GetIndexer(), revisions: revisions.GetIndexer(), claims: claims.GetStore(),
		derived: map[types.UID]*derived{}}
	return controller.Loop{
		Name: "statefulset-controller", QueueName: "statefulset",
		Watch: []controller.Watch{
			{Informer: sets.Informer(), Type: &appsv1.StatefulSet{}, Keys: l.keysOfSet},
			{Informer: revisions, Type: &appsv1.ControllerRevision{}, Keys: l.keysOfOwned},
			{Informer: pods, Type: &corev1.Pod{}, Keys: l.keysOfOwned},
			{Informer: claims, Type: &corev1.PersistentVolumeClaim{}, Keys: l.keysOfClaim},
		},
		Reconcile: l.reconcile,
	}
}

type loop struct {
	sets      appslisters.StatefulSetLister
	setIndex  cache.Indexer // of the same StatefulSets
	pods      cache.Indexer
	revisions cache.Indexer
	claims    cache.Store

	mu      sync.Mutex
	derived map[types.UID]*derived
}

// derived holds what is computed from a StatefulSet's template, once per generation.
type derived struct {
	generation int64
	patch      []byte // content of the template's ControllerRevision

	mu     sync.Mutex
	equals string // resourceVersion of a revision that differs from patch in defaults only
}

// equal reports whether a revision is of the template but for defaults: those that it was written without, by an older version.
func (d *derived) equal(r *appsv1.ControllerRevision) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.equals != "" && d.equals == r.ResourceVersion {
		return true
	}
	template, err := owned.PatchedTemplate(r.Data.Raw)
	if err != nil {
		return false
	}
	pod.DefaultTemplate(template)
	patch, err := owned.TemplatePatch(template)
	if err != nil || !bytes.Equal(patch, d.patch) {
		return false
	}
	d.equals = r.ResourceVersion
	return true
}

func selectorOf(set *appsv1.StatefulSet) *metav1.LabelSelector { return set.Spec.Selector }

// derive returns what is computed from a StatefulSet's template.
func (l *loop) derive(set *appsv1.StatefulSet) (*derived, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.derived[set.UID]; d != nil && d.generation == set.Generation {
		return d, nil
	}
	patch, err := owned.TemplatePatch(&set.Spec.Template)
	if err != nil {
		return nil, err
	}
	d := &derived{generation: set.Generation, patch: patch}
	l.derived[set.UID] = d
	return d, nil
}

func (l *loop) keysOfSet(before, after metav1.Object) []controller.Key {
	if after == nil {
		l.mu.Lock()
		delete(l.derived, before.GetUID())
		l.mu.Unlock()
		return nil
	}
	return []controller.Key{controller.KeyOf(after)}
}

// keysOfOwned returns the StatefulSets that a change of a pod or a revision concerns.
func (l *loop) keysOfOwned(before, after metav1.Object) []controller.Key {
	return owned.Keys(statefulSetKind.Kind, before, after, l.selecting)
}

func (l *loop) selecting(obj metav1.Object) []controller.Key {
	return owned.Selecting(l.setIndex, selectorOf, obj)
}

// keysOfClaim returns the StatefulSets that may be waiting for the deletion of a claim. Other changes of claims concern none.
func (l *loop) keysOfClaim(before, after metav1.Object) []controller.Key {
	if after != nil {
		return nil
	}
	return l.selecting(before)
}

func (l *loop) reconcile(key controller.Key, now time.Time) controller.Decision {
	set, err := l.sets.StatefulSets(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return controller.Nothing
	}
	if err != nil {
		return controller.Decision{Err: err}
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return controller.Nothing // an invalid selector stays invalid until the spec changes
	}
	canAdopt := owned.CanAdopt(set, func(ctx context.Context, c *client.Client) (metav1.Object, error) {
		return c.Kubernetes().AppsV1().StatefulSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
	})
	pods := owned.ClaimMembers(l.pods, set, statefulSetKind, selector, func(pod *corev1.Pod) bool { return ordinalOf(set, pod) >= 0 }, canAdopt)
	revisions := owned.Claim[*appsv1.ControllerRevision](l.revisions, set, statefulSetKind, selector, canAdopt)
	if claims := append(revisions.Actions, pods.Actions...); len(claims) > 0 {
		return controller.Decision{Actions: claims} // the changes requeue the set
	}
	d, err := l.derive(set)
	if err != nil {
		return controller.Decision{Err: err}
	}
	return decide(observed{set: set, derived: d, pods: pods.Owned, revisions: revisions.Owned,
		claim: func(name string) *corev1.PersistentVolumeClaim {
			return get[*corev1.PersistentVolumeClaim](l.claims, key.Namespace, name)
		},
		revision: func(name string) *appsv1.ControllerRevision {
			return get[*appsv1.ControllerRevision](l.revisions, key.Namespace, name)
		},
	}, now)
}

// get returns an object of a cache, or nil if it has none of that name.
func get[T metav1.Object](store cache.Store, namespace, name string) T {
	obj, _, err := store.GetByKey(namespace + "/" + name)
	if found, ok := obj.(T); ok && err == nil {
		return found
	}
	var none T
	return none
}
