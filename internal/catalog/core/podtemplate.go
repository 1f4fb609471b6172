package core

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/pod"
)

var PodTemplate = catalog.Resource[corev1.PodTemplate]{
	Version: "v1", Kind: "PodTemplate", Plural: "podtemplates", Namespaced: true,
	Deletion:            catalog.Deletion[corev1.PodTemplate]{ReturnsObject: true},
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default:             func(t *corev1.PodTemplate) { pod.DefaultTemplate(&t.Template) },
	PrepareCreate:       func(t *corev1.PodTemplate, _ catalog.Request) { pod.PrepareTemplate(&t.Template) },
	PrepareUpdate:       func(new, _ *corev1.PodTemplate) { pod.PrepareTemplate(&new.Template) },
	Changed:             templateChanged,
	Validate: func(t *corev1.PodTemplate) field.ErrorList {
		return pod.ValidateTemplate(&t.Template, nil, templatePath)
	},
	ValidateUpdate: func(new, old *corev1.PodTemplate) field.ErrorList {
		return pod.ValidateTemplate(&new.Template, &old.Template, templatePath)
	},
	Warnings: func(new, old *corev1.PodTemplate) []string {
		switch {
		case old == nil:
			return pod.TemplateWarnings(&new.Template, nil, templatePath)
		case templateChanged(new, old):
			return pod.TemplateWarnings(&new.Template, &old.Template, templatePath)
		}
		return nil
	},
	Columns: []catalog.Column[corev1.PodTemplate]{
		catalog.NameColumn[corev1.PodTemplate](),
		{Name: "Containers", Description: containersDoc,
			Cell: func(t *corev1.PodTemplate, _ time.Time) any { return containerNames(t.Template.Spec.Containers) }},
		{Name: "Images", Description: imagesDoc,
			Cell: func(t *corev1.PodTemplate, _ time.Time) any { return containerImages(t.Template.Spec.Containers) }},
		{Name: "Pod Labels", Description: "The labels for the pod template.",
			Cell: func(t *corev1.PodTemplate, _ time.Time) any { return labels.FormatLabels(t.Template.Labels) }},
	},
	Complete: true,
}

var templatePath = field.NewPath("template")

func templateChanged(new, old *corev1.PodTemplate) bool {
	return !apiequality.Semantic.DeepEqual(new.Template, old.Template)
}
