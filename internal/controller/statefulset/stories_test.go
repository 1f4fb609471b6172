package statefulset

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) {
	stories.Run(t, New, stories.Options{Prepare: prepare, Show: show})
}

// prepare sets what the API server and this loop set, so that stories can be short. A StatefulSet's and a revision's annotation "image" is the image
// of the template. A pod's annotation "is" says how it is: "ready" (since the story began), "running" and not ready; Pending without it.
func prepare(obj controller.Object) {
	switch o := obj.(type) {
	case *appsv1.StatefulSet:
		o.Generation = 1
		o.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": o.Name}}
		o.Spec.ServiceName = "svc"
		o.Spec.Template = templateOf(o.Name, o.Annotations["image"])
		if o.Spec.UpdateStrategy.Type == "" {
			o.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32)}}
		}
	case *appsv1.ControllerRevision:
		owner, _, _ := strings.Cut(o.Name, "-")
		if o.Labels == nil {
			o.Labels = map[string]string{"app": owner}
		}
		template := templateOf(owner, o.Annotations["image"])
		o.Data.Raw, _ = owned.TemplatePatch(&template)
	case *corev1.Pod:
		owner, ordinal, _ := strings.Cut(o.Name, "-")
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		for name, value := range map[string]string{"app": owner, appsv1.StatefulSetPodNameLabel: o.Name, appsv1.PodIndexLabel: ordinal} {
			if _, given := o.Labels[name]; !given {
				o.Labels[name] = value
			}
		}
		if o.Status.Phase == "" {
			o.Status.Phase = corev1.PodPending
		}
		if is := o.Annotations["is"]; is != "" {
			o.Status.Phase = corev1.PodRunning
			if is == "ready" {
				o.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(stories.Epoch)}}
			}
		}
	case *corev1.PersistentVolumeClaim:
		for i := range o.OwnerReferences {
			o.OwnerReferences[i].Controller = ptr.To(true)
		}
	}
}

func templateOf(app, image string) corev1.PodTemplateSpec {
	if image == "" {
		image = "one"
	}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}}
}

// show prints what matters of pods, claims and revisions.
func show(a controller.Action) string {
	verb, _, obj, ok := controller.Written(a)
	if !ok || verb == "delete" || verb == "patch" {
		return ""
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		image := ""
		for _, c := range o.Spec.Containers {
			image += c.Image
		}
		out := fmt.Sprintf("image %s, revision %s, index %s, host %s.%s", image, revisionOf(o), o.Labels[appsv1.PodIndexLabel], o.Spec.Hostname, o.Spec.Subdomain)
		for _, v := range o.Spec.Volumes {
			out += fmt.Sprintf("\nvolume %s: claim %s", v.Name, v.PersistentVolumeClaim.ClaimName)
		}
		return out
	case *corev1.PersistentVolumeClaim:
		out := fmt.Sprintf("labels %v", o.Labels)
		for _, owner := range o.OwnerReferences {
			out += fmt.Sprintf("\nof %s/%s", owner.Kind, owner.Name)
		}
		return out
	case *appsv1.ControllerRevision:
		template, err := owned.PatchedTemplate(o.Data.Raw)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("revision %d: image %s", o.Revision, template.Spec.Containers[0].Image)
	}
	return ""
}
