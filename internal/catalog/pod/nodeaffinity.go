package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

func (r *rules) nodeAffinity(p *check.Part, a *corev1.NodeAffinity) {
	if a.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		nodeSelector(p.Child("requiredDuringSchedulingIgnoredDuringExecution"), a.RequiredDuringSchedulingIgnoredDuringExecution, r.allow.nodeAffinityLabels)
	}
	for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		term, at := &a.PreferredDuringSchedulingIgnoredDuringExecution[i], p.Item("preferredDuringSchedulingIgnoredDuringExecution", i)
		weight(at, term.Weight)
		nodeSelectorTerm(at.Child("preference"), &term.Preference, true)
	}
}

// ValidateNodeSelector checks a selector of nodes, such as the one that says from where a volume can be reached.
// AnyValue allows values that no label can have.
func ValidateNodeSelector(s *corev1.NodeSelector, anyValue bool, path *field.Path) field.ErrorList {
	p := check.At(path)
	nodeSelector(p, s, anyValue)
	return p.Errors()
}

func nodeSelector(p *check.Part, s *corev1.NodeSelector, anyValue bool) {
	p.Present("nodeSelectorTerms", len(s.NodeSelectorTerms) > 0, "must have at least one node selector term")
	for i := range s.NodeSelectorTerms {
		nodeSelectorTerm(p.Item("nodeSelectorTerms", i), &s.NodeSelectorTerms[i], anyValue)
	}
}

func nodeSelectorTerm(p *check.Part, t *corev1.NodeSelectorTerm, anyValue bool) {
	for i := range t.MatchExpressions {
		nodeExpression(p.Item("matchExpressions", i), &t.MatchExpressions[i], anyValue)
	}
	for i := range t.MatchFields {
		nodeField(p.Item("matchFields", i), &t.MatchFields[i])
	}
}

func nodeExpression(p *check.Part, e *corev1.NodeSelectorRequirement, anyValue bool) {
	switch e.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		p.Present("values", len(e.Values) > 0, "must be specified when `operator` is 'In' or 'NotIn'")
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(e.Values) > 0 {
			p.Forbidden("values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		p.Present("values", len(e.Values) == 1, "must be specified single value when `operator` is 'Lt' or 'Gt'")
	default:
		p.Invalid("operator", e.Operator, "not a valid selector operator")
	}
	p.Format("key", e.Key, utilvalidation.IsQualifiedName)
	if anyValue {
		return
	}
	for i, value := range e.Values {
		for _, msg := range utilvalidation.IsValidLabelValue(value) {
			p.Add(field.Invalid(p.Path("values").Index(i), value, msg))
		}
	}
}

// nodeField checks a requirement on a field of nodes, of which there is one: their name.
func nodeField(p *check.Part, e *corev1.NodeSelectorRequirement) {
	switch e.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		p.Present("values", len(e.Values) == 1, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
	default:
		p.Invalid("operator", e.Operator, "not a valid selector operator")
	}
	if e.Key != metav1.ObjectNameField {
		p.Invalid("key", e.Key, "not a valid field selector key")
		return
	}
	for i, value := range e.Values {
		for _, msg := range validation.NameIsDNSSubdomain(value, false) {
			p.Add(field.Invalid(p.Path("values").Index(i), value, msg))
		}
	}
}

func invalidLabelValue(list []corev1.NodeSelectorRequirement) bool {
	for _, e := range list {
		for _, value := range e.Values {
			if len(utilvalidation.IsValidLabelValue(value)) > 0 {
				return true
			}
		}
	}
	return false
}
