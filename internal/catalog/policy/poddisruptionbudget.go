package policy

import (
	"slices"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/workload"
)

// Resources returns the resources of the group.
func Resources() []catalog.Declaration { return []catalog.Declaration{PodDisruptionBudget} }

var PodDisruptionBudget = catalog.Resource[policyv1.PodDisruptionBudget]{
	Group: "policy", Version: "v1", Kind: "PodDisruptionBudget", Plural: "poddisruptionbudgets",
	AnyFinalizer: true,
	Short:        []string{"pdb"}, Namespaced: true,
	Name: func(name string, prefix bool) []string {
		if prefix {
			return content.IsPathSegmentPrefix(name)
		}
		return content.IsPathSegmentName(name)
	},
	PrepareCreate: func(b *policyv1.PodDisruptionBudget, _ catalog.Request) {
		b.Spec.Selector = withoutMark(b.Spec.Selector)
	},
	PrepareUpdate: func(new, old *policyv1.PodDisruptionBudget) {
		if !apiequality.Semantic.DeepEqual(new.Spec.Selector, old.Spec.Selector) {
			new.Spec.Selector = withoutMark(new.Spec.Selector)
		}
	},
	Changed: catalog.SpecChanged[policyv1.PodDisruptionBudget],
	Validate: func(b *policyv1.PodDisruptionBudget) field.ErrorList {
		return validateBudget(&b.Spec, metav1validation.LabelSelectorValidationOptions{})
	},
	ValidateUpdate: func(new, old *policyv1.PodDisruptionBudget) field.ErrorList {
		before := check.At(nil)
		before.StrictSelector("selector", old.Spec.Selector)
		return validateBudget(&new.Spec, metav1validation.LabelSelectorValidationOptions{
			AllowInvalidLabelValueInSelector: len(before.Errors()) > 0})
	},
	Status: &catalog.Edit[policyv1.PodDisruptionBudget]{ValidateUpdate: validateBudgetStatus},
	Columns: []catalog.Column[policyv1.PodDisruptionBudget]{
		catalog.NameColumn[policyv1.PodDisruptionBudget](),
		{Name: "Min Available", Description: "The minimum number of pods that must be available.",
			Cell: func(b *policyv1.PodDisruptionBudget, _ time.Time) any { return amount(b.Spec.MinAvailable) }},
		{Name: "Max Unavailable", Description: "The maximum number of pods that may be unavailable.",
			Cell: func(b *policyv1.PodDisruptionBudget, _ time.Time) any { return amount(b.Spec.MaxUnavailable) }},
		{Name: "Allowed Disruptions", Type: "integer", Description: "Calculated number of pods that may be disrupted at this time.",
			Cell: func(b *policyv1.PodDisruptionBudget, _ time.Time) any { return int64(b.Status.DisruptionsAllowed) }},
		catalog.AgeColumn[policyv1.PodDisruptionBudget](),
	},
	Complete: true,
}

// emptySelectorMark is the label key with which v1beta1 marked what an empty selector means. It is kept if it is the only requirement; otherwise it is
// ignored.
const emptySelectorMark = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"

// withoutMark returns a selector without the mark, unless the mark is all of it.
func withoutMark(s *metav1.LabelSelector) *metav1.LabelSelector {
	marked := func(r metav1.LabelSelectorRequirement) bool { return r.Key == emptySelectorMark }
	if s == nil || !slices.ContainsFunc(s.MatchExpressions, marked) {
		return s
	}
	if len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 1 &&
		s.MatchExpressions[0].Operator == metav1.LabelSelectorOpExists && len(s.MatchExpressions[0].Values) == 0 {
		return s
	}
	return &metav1.LabelSelector{MatchLabels: s.MatchLabels, MatchExpressions: slices.DeleteFunc(slices.Clone(s.MatchExpressions), marked)}
}

func validateBudget(s *policyv1.PodDisruptionBudgetSpec, selector metav1validation.LabelSelectorValidationOptions) field.ErrorList {
	spec := check.At(field.NewPath("spec"))
	if s.MinAvailable != nil && s.MaxUnavailable != nil {
		spec.Invalid("", check.Internal(s), "minAvailable and maxUnavailable cannot be both set")
	}
	for _, a := range []struct {
		name  string
		value *intstr.IntOrString
	}{{"minAvailable", s.MinAvailable}, {"maxUnavailable", s.MaxUnavailable}} {
		if a.value != nil {
			workload.IntOrPercent(spec, a.name, *a.value)
			workload.AtMostAll(spec, a.name, *a.value)
		}
	}
	spec.Selector("selector", s.Selector, selector)
	if s.UnhealthyPodEvictionPolicy != nil {
		check.OneOf(spec, "unhealthyPodEvictionPolicy", *s.UnhealthyPodEvictionPolicy, policyv1.AlwaysAllow, policyv1.IfHealthyBudget)
	}
	return spec.Errors()
}

func validateBudgetStatus(new, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	s := &new.Status
	p := check.At(field.NewPath("status"))
	if len(s.Conditions) > 0 {
		p.Add(metav1validation.ValidateConditions(s.Conditions, p.Path("conditions"))...)
	}
	p.NonNegative("disruptionsAllowed", int64(s.DisruptionsAllowed))
	p.NonNegative("currentHealthy", int64(s.CurrentHealthy))
	p.NonNegative("desiredHealthy", int64(s.DesiredHealthy))
	p.NonNegative("expectedPods", int64(s.ExpectedPods))
	return p.Errors()
}

func amount(v *intstr.IntOrString) string {
	if v == nil {
		return "N/A"
	}
	return v.String()
}
