package deployment

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

// observed holds the state that a decision is made from.
type observed struct {
	seen *appsv1.Deployment // as in the cache
	// sets returns the ReplicaSets that the Deployment controls and selects, and the actions that adopt and release others.
	sets  func(selector labels.Selector, canAdopt controller.Action) owned.Claims[*appsv1.ReplicaSet]
	pods  func(set types.UID) []*corev1.Pod    // returns the pods of a ReplicaSet
	named func(name string) *appsv1.ReplicaSet // returns the ReplicaSet of that name, whatever controls it, or nil
}

// decide returns what to do about a Deployment.
func decide(o observed, now time.Time) controller.Decision {
	d := o.seen
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err == nil && d.Spec.Selector == nil {
		err = errors.New("it is missing")
	}
	if err != nil {
		return controller.Decision{Err: fmt.Errorf("deployment %s/%s has invalid label selector: %w", d.Namespace, d.Name, err)}
	}
	if selector.Empty() {
		return selectsAll(d)
	}
	claims := o.sets(selector, owned.CanAdopt(d, func(ctx context.Context, c *client.Client) (metav1.Object, error) {
		return c.Kubernetes().AppsV1().Deployments(d.Namespace).Get(ctx, d.Name, metav1.GetOptions{})
	}))
	if len(claims.Actions) > 0 {
		return controller.Decision{Actions: claims.Actions} // the rest follows when the caches have observed the owners
	}
	p := newPlan(o, claims.Owned, now)
	if d.DeletionTimestamp == nil {
		p.notePaused()
	}
	p.syncNew()
	to, rollingBack := rollbackTo(d)
	switch {
	case d.DeletionTimestamp != nil:
		return p.carryOut(false)
	case d.Spec.Paused:
		p.scaleProportionally()
		if !rollingBack {
			p.cleanUp()
		}
		return p.carryOut(false)
	case rollingBack:
		return p.withNew(func() controller.Decision { return p.rollBack(to) })
	case p.isScaled() && p.canBeScaled():
		p.scaleProportionally()
		return p.carryOut(false)
	case d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		return p.recreate()
	case d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType:
		return p.roll()
	}
	return controller.Decision{Err: fmt.Errorf("unexpected deployment strategy type: %s", d.Spec.Strategy.Type)}
}

// selectsAll warns that a Deployment with an empty selector is not rolled out, as it would own all pods.
func selectsAll(d *appsv1.Deployment) controller.Decision {
	actions := []controller.Action{controller.Event(d, corev1.EventTypeWarning, "SelectingAll",
		"This deployment is selecting all pods. A non-empty selector is required.")}
	if d.Status.ObservedGeneration < d.Generation {
		updated := d.DeepCopy()
		updated.Status.ObservedGeneration = d.Generation
		actions = append(actions, controller.UpdateStatus(updated))
	}
	return controller.Decision{Actions: actions}
}
