package replicaset

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) {
	stories.Run(t, both, stories.Options{Prepare: prepare, Show: show})
}

// both returns the loop of either kind: names in a story are unique.
func both(deps controller.Deps) controller.Loop {
	sets, controllers := New(deps), NewReplicationController(deps)
	return controller.Loop{Reconcile: func(key controller.Key, now time.Time) controller.Decision {
		if _, there, _ := deps.Informers.Core().V1().ReplicationControllers().Informer().GetStore().GetByKey(key.String()); there {
			return controllers.Reconcile(key, now)
		}
		return sets.Reconcile(key, now)
	}}
}

// prepare gives sets a selector and a template, and a pod the labels of its set, unless the story does.
func prepare(obj controller.Object) {
	app := map[string]string{"app": "web"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx"}}}}
	switch o := obj.(type) {
	case *appsv1.ReplicaSet:
		if o.Spec.Selector == nil {
			o.Spec.Selector = &metav1.LabelSelector{MatchLabels: app}
		}
		if o.Spec.Template.Labels == nil {
			o.Spec.Template = template
		}
		if o.Status.TerminatingReplicas == nil && o.Status.ObservedGeneration > 0 {
			o.Status.TerminatingReplicas = ptr.To(int32(0))
		}
	case *corev1.ReplicationController:
		o.Spec.Selector, o.Spec.Template = app, &template
	case *corev1.Pod:
		if o.Labels == nil {
			o.Labels = app
		}
	}
}

// show prints the owner of a new pod.
func show(a controller.Action) string {
	verb, _, obj, ok := controller.Written(a)
	if pod, isPod := obj.(*corev1.Pod); ok && isPod && verb == "create" {
		owner := metav1.GetControllerOf(pod)
		return fmt.Sprintf("labels=%v of %s/%s", labelsText(pod.Labels), owner.Kind, owner.Name)
	}
	return ""
}

func labelsText(l map[string]string) string {
	return metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: l})
}
