package daemonset

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) {
	stories.Run(t, New, stories.Options{Prepare: prepare, Show: show})
}

// prepare sets what the API server and this loop set. Revisions have their template's image in spec, so that stories can be short: a DaemonSet's
// annotation "image" is the image of its template.
func prepare(obj controller.Object) {
	switch o := obj.(type) {
	case *appsv1.DaemonSet:
		labels := map[string]string{"app": o.Name}
		o.Generation = 1
		o.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		o.Spec.Template.Labels = labels
		image := o.Annotations["image"]
		if image == "" {
			image = "i"
		}
		o.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: image}}
		if o.Spec.UpdateStrategy.Type == "" {
			o.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
		}
		if o.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType && o.Spec.UpdateStrategy.RollingUpdate == nil {
			one, zero := intstr.FromInt32(1), intstr.FromInt32(0)
			o.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &one, MaxSurge: &zero}
		}
	case *appsv1.ControllerRevision:
		owner := metav1.GetControllerOf(o)
		if o.Labels == nil {
			o.Labels = map[string]string{"app": owner.Name, hashLabel: strings.TrimPrefix(o.Name, owner.Name+"-")}
		}
		template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": owner.Name}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: o.Annotations["image"]}}}}
		o.Data.Raw, _ = owned.TemplatePatch(&template)
	case *corev1.Pod:
		owner := metav1.GetControllerOf(o)
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels["app"] = owner.Name
		if node := o.Annotations["for"]; node != "" { // not bound yet
			o.Spec.Affinity = requireNode(nil, node)
		}
	}
}

// show prints for which node new pods are, and the content of revisions.
func show(a controller.Action) string {
	verb, _, obj, ok := controller.Written(a)
	if !ok || verb == "delete" || verb == "patch" {
		return ""
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		return fmt.Sprintf("for %s, revision %s, tolerations %d", nodeOf(o), o.Labels[hashLabel], len(o.Spec.Tolerations))
	case *appsv1.ControllerRevision:
		var data struct{ Spec appsv1.DaemonSetSpec }
		if err := json.Unmarshal(o.Data.Raw, &data); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("revision %d: image %s", o.Revision, data.Spec.Template.Spec.Containers[0].Image)
	}
	return ""
}
