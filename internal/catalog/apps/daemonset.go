package apps

import (
	"maps"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/pod"
	"skiff/internal/catalog/workload"
)

var DaemonSet = catalog.Resource[appsv1.DaemonSet]{
	Group: "apps", Version: "v1", Kind: "DaemonSet", Plural: "daemonsets",
	Short: []string{"ds"}, Categories: []string{"all"}, Namespaced: true,
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default:             defaultDaemonSet,
	PrepareCreate: func(d *appsv1.DaemonSet, _ catalog.Request) {
		if generation, ok := templateGeneration(d); ok {
			setTemplateGeneration(d, max(generation, 1))
		}
		pod.PrepareTemplate(&d.Spec.Template)
	},
	PrepareUpdate: prepareDaemonSetUpdate,
	Changed:       catalog.SpecChanged[appsv1.DaemonSet],
	Validate: func(d *appsv1.DaemonSet) field.ErrorList {
		return validateDaemonSet(d, nil).Errors()
	},
	ValidateUpdate: func(new, old *appsv1.DaemonSet) field.ErrorList {
		return validateDaemonSet(new, old).Errors()
	},
	Warnings: func(new, old *appsv1.DaemonSet) []string {
		path := field.NewPath("spec", "template")
		if old == nil {
			return pod.TemplateWarnings(&new.Spec.Template, nil, path)
		}
		if new.Annotations[appsv1.DeprecatedTemplateGeneration] == old.Annotations[appsv1.DeprecatedTemplateGeneration] {
			return nil
		}
		return pod.TemplateWarnings(&new.Spec.Template, &old.Spec.Template, path)
	},
	Status: &catalog.Edit[appsv1.DaemonSet]{
		PrepareUpdate:  func(new, old *appsv1.DaemonSet) { keepAnnotation(new, old, appsv1.DeprecatedTemplateGeneration) },
		ValidateUpdate: validateDaemonSetStatus,
	},
	Columns:  daemonSetColumns(),
	Complete: true,
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	s := &d.Spec
	pod.DefaultTemplate(&s.Template)
	if s.UpdateStrategy.Type == "" {
		s.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	}
	if s.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		fill(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		fill(&s.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	if r := s.UpdateStrategy.RollingUpdate; r != nil {
		fill(&r.MaxUnavailable, intstr.FromInt32(0)) // upstream has no way to leave these out
		fill(&r.MaxSurge, intstr.FromInt32(0))
	}
	fill(&s.RevisionHistoryLimit, 10)
	if _, ok := d.Annotations[appsv1.DeprecatedTemplateGeneration]; !ok {
		setTemplateGeneration(d, 0)
	}
}

// The generation of the template was a field before apps/v1. It is now an annotation that the server maintains.

func templateGeneration(d *appsv1.DaemonSet) (int64, bool) {
	text, ok := d.Annotations[appsv1.DeprecatedTemplateGeneration]
	if !ok {
		return 0, true
	}
	generation, err := strconv.ParseInt(text, 10, 64)
	return generation, err == nil
}

func setTemplateGeneration(d *appsv1.DaemonSet, generation int64) {
	setAnnotation(d, appsv1.DeprecatedTemplateGeneration, strconv.FormatInt(generation, 10))
}

func setAnnotation(obj catalog.Object, key, text string) {
	if obj.GetAnnotations()[key] == text {
		return
	}
	// The map may be shared with the object in the cache.
	annotations := maps.Clone(obj.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = text
	obj.SetAnnotations(annotations)
}

// keepAnnotation restores an annotation that replaces a former field of the spec.
func keepAnnotation(new, old catalog.Object, key string) {
	text, had := old.GetAnnotations()[key]
	if had {
		setAnnotation(new, key, text)
		return
	}
	if _, has := new.GetAnnotations()[key]; has {
		annotations := maps.Clone(new.GetAnnotations())
		delete(annotations, key)
		new.SetAnnotations(annotations)
	}
}

func prepareDaemonSetUpdate(new, old *appsv1.DaemonSet) {
	pod.PrepareTemplate(&new.Spec.Template)
	if _, ok := templateGeneration(new); !ok {
		return // validation refuses it
	}
	generation, _ := templateGeneration(old)
	if !workload.Same(&new.Spec.Template, &old.Spec.Template) {
		generation++
	}
	setTemplateGeneration(new, generation)
}

func validateDaemonSet(d, old *appsv1.DaemonSet) *check.Part {
	s := &d.Spec
	spec := check.At(field.NewPath("spec"))
	if _, ok := templateGeneration(d); !ok {
		path := field.NewPath("metadata", "annotations").Key(appsv1.DeprecatedTemplateGeneration)
		spec.Add(field.Invalid(path, d.Annotations[appsv1.DeprecatedTemplateGeneration], "must be a number"))
	}
	var oldTemplate *corev1.PodTemplateSpec
	var selectorOpts metav1validation.LabelSelectorValidationOptions
	if old != nil {
		oldTemplate = &old.Spec.Template
		spec.Immutable("selector", s.Selector, old.Spec.Selector)
		selectorOpts.AllowInvalidLabelValueInSelector = metav1validation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector)
	}
	spec.Selector("selector", s.Selector, selectorOpts)
	if matches, err := workload.Matches(s.Selector, &s.Template); err == nil && !matches {
		workload.Mismatch(spec, &s.Template)
	}
	if s.Selector != nil && len(s.Selector.MatchLabels)+len(s.Selector.MatchExpressions) == 0 {
		spec.Invalid("selector", s.Selector, "empty selector is invalid for daemonset")
	}
	spec.Add(pod.ValidateTemplate(&s.Template, oldTemplate, spec.Path("template"))...)
	workload.RunsForever(spec, &s.Template, "DaemonSet")
	spec.NonNegative("minReadySeconds", int64(s.MinReadySeconds))
	validateDaemonSetStrategy(spec.Child("updateStrategy"), &s.UpdateStrategy)
	check.NonNegativeIfSet(spec, "revisionHistoryLimit", s.RevisionHistoryLimit)
	return spec
}

func validateDaemonSetStrategy(p *check.Part, s *appsv1.DaemonSetUpdateStrategy) {
	switch s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
	case appsv1.RollingUpdateDaemonSetStrategyType:
		unavailable, surge := *s.RollingUpdate.MaxUnavailable, *s.RollingUpdate.MaxSurge
		r := p.Child("rollingUpdate")
		workload.IntOrPercent(r, "maxUnavailable", unavailable)
		workload.IntOrPercent(r, "maxSurge", surge)
		workload.AtMostAll(r, "maxUnavailable", unavailable)
		workload.AtMostAll(r, "maxSurge", surge)
		switch someUnavailable, someSurge := workload.Amount(unavailable) != 0, workload.Amount(surge) != 0; {
		case someUnavailable && someSurge:
			r.Invalid("maxSurge", surge, "may not be set when maxUnavailable is non-zero")
		case !someUnavailable && !someSurge:
			r.Required("maxUnavailable", "cannot be 0 when maxSurge is 0")
		}
	default:
		given := *s
		if s.RollingUpdate != nil {
			rolling := *s.RollingUpdate
			fill(&rolling.MaxUnavailable, intstr.IntOrString{})
			fill(&rolling.MaxSurge, intstr.IntOrString{})
			given.RollingUpdate = &rolling
		}
		p.Add(field.NotSupported(p.Path(), check.Internal(given), []appsv1.DaemonSetUpdateStrategyType{
			appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType}))
	}
}

func validateDaemonSetStatus(new, old *appsv1.DaemonSet) field.ErrorList {
	s := &new.Status
	p := check.At(field.NewPath("status"))
	p.NonNegative("currentNumberScheduled", int64(s.CurrentNumberScheduled))
	p.NonNegative("numberMisscheduled", int64(s.NumberMisscheduled))
	p.NonNegative("desiredNumberScheduled", int64(s.DesiredNumberScheduled))
	p.NonNegative("numberReady", int64(s.NumberReady))
	p.NonNegative("observedGeneration", s.ObservedGeneration)
	p.NonNegative("updatedNumberScheduled", int64(s.UpdatedNumberScheduled))
	p.NonNegative("numberAvailable", int64(s.NumberAvailable))
	p.NonNegative("numberUnavailable", int64(s.NumberUnavailable))
	check.NonNegativeIfSet(p, "collisionCount", s.CollisionCount)
	workload.Kept(p, "collisionCount", s.CollisionCount, old.Status.CollisionCount)
	return p.Errors()
}

func daemonSetColumns() []catalog.Column[appsv1.DaemonSet] {
	type column = catalog.Column[appsv1.DaemonSet]
	doc := appsv1.DaemonSetStatus{}.SwaggerDoc()
	count := func(name, field string, of func(*appsv1.DaemonSetStatus) int32) column {
		return column{Name: name, Type: "integer", Description: doc[field],
			Cell: func(d *appsv1.DaemonSet, _ time.Time) any { return int64(of(&d.Status)) }}
	}
	template := func(d *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &d.Spec.Template }
	return []column{
		catalog.NameColumn[appsv1.DaemonSet](),
		count("Desired", "desiredNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.DesiredNumberScheduled }),
		count("Current", "currentNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.CurrentNumberScheduled }),
		count("Ready", "numberReady", func(s *appsv1.DaemonSetStatus) int32 { return s.NumberReady }),
		count("Up-to-date", "updatedNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.UpdatedNumberScheduled }),
		count("Available", "numberAvailable", func(s *appsv1.DaemonSetStatus) int32 { return s.NumberAvailable }),
		{Name: "Node Selector", Description: corev1.PodSpec{}.SwaggerDoc()["nodeSelector"],
			Cell: func(d *appsv1.DaemonSet, _ time.Time) any {
				return labels.FormatLabels(d.Spec.Template.Spec.NodeSelector)
			}},
		catalog.AgeColumn[appsv1.DaemonSet](),
		workload.Containers(template),
		workload.Images(template),
		workload.Selector(appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"],
			func(d *appsv1.DaemonSet) *metav1.LabelSelector { return d.Spec.Selector }),
	}
}
