package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

// ValidateTemplate validates a pod template; old is nil on create.
func ValidateTemplate(t, old *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	var oldSpec *corev1.PodSpec
	var oldMeta *metav1.ObjectMeta
	if old != nil {
		oldSpec, oldMeta = &old.Spec, &old.ObjectMeta
	}
	return ratchet(oldSpec, oldMeta, func(allow leniency) field.ErrorList {
		p := check.At(path)
		checkLabels(p, "labels", t.Labels)
		if len(t.Annotations) > 0 {
			p.Add(validation.ValidateAnnotations(t.Annotations, p.Path("annotations"))...)
		}
		checkAnnotations(p, t.Annotations, &t.Spec, allow)
		spec := p.Child("spec")
		checkSpec(spec, &t.Spec, nil, allow)
		checkProfilesAgree(spec, t.Annotations, &t.Spec)
		if len(t.Spec.EphemeralContainers) > 0 {
			spec.Forbidden("ephemeralContainers", "ephemeral containers not allowed in pod template")
		}
		return p.Errors()
	})
}
