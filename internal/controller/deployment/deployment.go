package deployment

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

var kind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// New returns the loop that reconciles Deployments.
func New(deps controller.Deps) controller.Loop {
	apps := deps.Informers.Apps().V1()
	l := &loop{deployments: apps.Deployments().Lister(), deploymentIndex: apps.Deployments().Informer().GetIndexer(), sets: apps.ReplicaSets().Lister(),
		setIndex: apps.ReplicaSets().Informer().GetIndexer(), podIndex: deps.Informers.Core().V1().Pods().Informer().GetIndexer()}
	owned.IndexSelectors(apps.Deployments().Informer(), selectorOf)
	owned.Index(apps.ReplicaSets().Informer())
	owned.Index(deps.Informers.Core().V1().Pods().Informer())
	return controller.Loop{Name: "deployment-controller", QueueName: "deployment", Reconcile: l.reconcile, Watch: []controller.Watch{
		{Informer: apps.Deployments().Informer(), Type: &appsv1.Deployment{}},
		{Informer: apps.ReplicaSets().Informer(), Type: &appsv1.ReplicaSet{}, Keys: l.setKeys},
		{Informer: deps.Informers.Core().V1().Pods().Informer(), Type: &corev1.Pod{}, Keys: l.podKeys},
	}}
}

// loop reads the caches.
type loop struct {
	deployments        appslisters.DeploymentLister
	deploymentIndex    cache.Indexer // of the same Deployments
	sets               appslisters.ReplicaSetLister
	setIndex, podIndex cache.Indexer
}

func (l *loop) reconcile(key controller.Key, now time.Time) controller.Decision {
	d, err := l.deployments.Deployments(key.Namespace).Get(key.Name)
	if err != nil {
		return controller.Nothing // its ReplicaSets are left to the garbage collector
	}
	return decide(observed{
		seen: d,
		sets: func(selector labels.Selector, canAdopt controller.Action) owned.Claims[*appsv1.ReplicaSet] {
			return owned.Claim[*appsv1.ReplicaSet](l.setIndex, d, kind, selector, canAdopt)
		},
		pods: func(set types.UID) []*corev1.Pod { return owned.By[*corev1.Pod](l.podIndex, set) },
		named: func(name string) *appsv1.ReplicaSet {
			rs, err := l.sets.ReplicaSets(key.Namespace).Get(name)
			if err != nil {
				return nil
			}
			return rs
		},
	}, now)
}

// setKeys returns the Deployments that a change of a ReplicaSet concerns.
func (l *loop) setKeys(before, after metav1.Object) []controller.Key {
	return owned.Keys(kind.Kind, before, after, func(set metav1.Object) []controller.Key { return owned.Selecting(l.deploymentIndex, selectorOf, set) })
}

func selectorOf(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector }

// podKeys returns the Deployment that the deletion of a pod concerns: with strategy Recreate it waits until the old pods are gone.
func (l *loop) podKeys(before, after metav1.Object) []controller.Key {
	if after != nil {
		return nil
	}
	owner := metav1.GetControllerOfNoCopy(before)
	if owner == nil || owner.Kind != "ReplicaSet" {
		return nil
	}
	rs, err := l.sets.ReplicaSets(before.GetNamespace()).Get(owner.Name)
	if err != nil || rs.UID != owner.UID {
		return nil
	}
	by := metav1.GetControllerOfNoCopy(rs)
	if by == nil || by.Kind != kind.Kind {
		return nil
	}
	d, err := l.deployments.Deployments(rs.Namespace).Get(by.Name)
	if err != nil || d.UID != by.UID || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		return nil
	}
	return []controller.Key{controller.KeyOf(d)}
}
