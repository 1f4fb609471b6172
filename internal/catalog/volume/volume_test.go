package volume_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/catalogtest"
	"skiff/internal/catalog/storage"
	"skiff/internal/catalog/volume"
)

// pods declares pods with nothing but the rules for their volumes.
var pods = catalog.Resource[corev1.Pod]{
	Version: "v1", Kind: "Pod", Plural: "pods", Namespaced: true, Name: validation.NameIsDNSSubdomain,
	Default: func(p *corev1.Pod) {
		for i := range p.Spec.Volumes {
			volume.Default(&p.Spec.Volumes[i])
		}
	},
	Validate: func(p *corev1.Pod) field.ErrorList {
		_, errs := volume.Validate(p.Spec.Volumes, &p.ObjectMeta, field.NewPath("spec", "volumes"))
		return errs
	},
}

var templates = catalog.Resource[corev1.PodTemplate]{
	Version: "v1", Kind: "PodTemplate", Plural: "podtemplates", Namespaced: true, Name: validation.NameIsDNSSubdomain,
	Default: func(p *corev1.PodTemplate) {
		for i := range p.Template.Spec.Volumes {
			volume.Default(&p.Template.Spec.Volumes[i])
		}
	},
	Validate: func(p *corev1.PodTemplate) field.ErrorList {
		_, errs := volume.Validate(p.Template.Spec.Volumes, nil, field.NewPath("template", "spec", "volumes"))
		return errs
	},
	Warnings: func(p, _ *corev1.PodTemplate) []string {
		return volume.Warnings(p.Template.Spec.Volumes, field.NewPath("template", "spec", "volumes"))
	},
	Columns: []catalog.Column[corev1.PodTemplate]{
		catalog.NameColumn[corev1.PodTemplate](),
		{Name: "Containers", Description: "Names of each container in the template.", Cell: func(*corev1.PodTemplate, time.Time) any { return "c" }},
		{Name: "Images", Description: "Images referenced by each container in the template.", Cell: func(*corev1.PodTemplate, time.Time) any { return "i" }},
		{Name: "Pod Labels", Description: "The labels for the pod template.", Cell: func(*corev1.PodTemplate, time.Time) any { return "a=b" }},
	},
}

func TestStories(t *testing.T) {
	catalogtest.Run(t, []catalog.Declaration{volume.PersistentVolume, volume.PersistentVolumeClaim, storage.StorageClass, pods, templates}, catalogtest.Options{Ignore: []string{
		"status.lastPhaseTransitionTime",
		"template.spec.containers", "template.spec.dnsPolicy", "template.spec.restartPolicy", "template.spec.schedulerName",
		"template.spec.securityContext", "template.spec.terminationGracePeriodSeconds", "metadata.generation",
	}})
}
