package disruption

import (
	"errors"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) {
	stories.Run(t, func(deps controller.Deps) controller.Loop {
		l := newLoop(deps)
		api := deps.Informers.Core().V1().ConfigMaps().Lister().ConfigMaps("default")
		l.readScale = func(q *scaleQuery) controller.Action {
			if m, err := api.Get(q.ref.Name); err != nil {
				q.found = nil
			} else if m.Data["error"] != "" {
				q.err = errors.New(m.Data["error"])
			} else {
				replicas, _ := strconv.Atoi(m.Data["replicas"])
				q.found = &scale{types.UID(m.Data["uid"]), int32(replicas)}
			}
			return controller.Call(q.String(), nil)
		}
		return controller.Loop{Reconcile: func(key controller.Key, now time.Time) controller.Decision {
			return l.reconcile(key, now)
		}}
	}, stories.Options{Prepare: prepare})
}

// prepare lets budgets select app=web, unless the story says otherwise, and pods have that label and be ready. A budget named unset selects nothing.
func prepare(obj controller.Object) {
	app := map[string]string{"app": "web"}
	switch o := obj.(type) {
	case *policyv1.PodDisruptionBudget:
		o.Generation = 1
		if o.Spec.Selector == nil && o.Name != "unset" {
			o.Spec.Selector = &metav1.LabelSelector{MatchLabels: app}
		}
	case *corev1.Pod:
		o.Generation = 3
		if o.Labels == nil {
			o.Labels = app
		}
		if o.Status.Phase == "" {
			o.Status.Phase = corev1.PodRunning
			o.Status.Conditions = append(o.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		}
	}
}
