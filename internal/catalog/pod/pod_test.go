package pod

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/catalogtest"
)

func TestStories(t *testing.T) {
	catalogtest.Run(t, []catalog.Declaration{Pod, podTemplate}, catalogtest.Options{Ignore: []string{"status.conditions.lastTransitionTime"}})
}

// podTemplate declares the simplest resource with a template.
var podTemplate = catalog.Resource[corev1.PodTemplate]{
	Version: "v1", Kind: "PodTemplate", Plural: "podtemplates", Namespaced: true,
	Name:          validation.NameIsDNSSubdomain,
	Default:       func(t *corev1.PodTemplate) { DefaultTemplate(&t.Template) },
	PrepareCreate: func(t *corev1.PodTemplate, _ catalog.Request) { PrepareTemplate(&t.Template) },
	PrepareUpdate: func(new, _ *corev1.PodTemplate) { PrepareTemplate(&new.Template) },
	Changed:       templateChanged,
	Validate: func(t *corev1.PodTemplate) field.ErrorList {
		return ValidateTemplate(&t.Template, nil, field.NewPath("template"))
	},
	ValidateUpdate: func(new, old *corev1.PodTemplate) field.ErrorList {
		return ValidateTemplate(&new.Template, &old.Template, field.NewPath("template"))
	},
	Warnings: func(new, old *corev1.PodTemplate) []string {
		if old == nil {
			return TemplateWarnings(&new.Template, nil, field.NewPath("template"))
		}
		if !templateChanged(new, old) {
			return nil
		}
		return TemplateWarnings(&new.Template, &old.Template, field.NewPath("template"))
	},
	Columns: []catalog.Column[corev1.PodTemplate]{
		catalog.NameColumn[corev1.PodTemplate](),
		{Name: "Containers", Description: "Names of each container in the template.", Cell: ofContainers(func(c corev1.Container) string { return c.Name })},
		{Name: "Images", Description: "Images referenced by each container in the template.", Cell: ofContainers(func(c corev1.Container) string { return c.Image })},
		{Name: "Pod Labels", Description: "The labels for the pod template.",
			Cell: func(t *corev1.PodTemplate, _ time.Time) any { return labels.FormatLabels(t.Template.Labels) }},
	},
}

func templateChanged(new, old *corev1.PodTemplate) bool {
	return !apiequality.Semantic.DeepEqual(new.Template, old.Template)
}

func ofContainers(of func(corev1.Container) string) func(*corev1.PodTemplate, time.Time) any {
	return func(t *corev1.PodTemplate, _ time.Time) any {
		var words []string
		for _, c := range t.Template.Spec.Containers {
			words = append(words, of(c))
		}
		return strings.Join(words, ",")
	}
}
