package nodeselector

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

// Validate validates a node selector. With anyLabelValue it may hold values that no label can have, as objects from before
// that rule do.
func Validate(s *corev1.NodeSelector, anyLabelValue bool, path *field.Path) field.ErrorList {
	at := check.At(path)
	at.Present("nodeSelectorTerms", len(s.NodeSelectorTerms) > 0, "must have at least one node selector term")
	for i := range s.NodeSelectorTerms {
		checkTerm(at.Item("nodeSelectorTerms", i), &s.NodeSelectorTerms[i], anyLabelValue)
	}
	return at.Errors()
}

// ValidateTerm checks one term of a node selector.
func ValidateTerm(t *corev1.NodeSelectorTerm, anyLabelValue bool, path *field.Path) field.ErrorList {
	at := check.At(path)
	checkTerm(at, t, anyLabelValue)
	return at.Errors()
}

// HasInvalidLabelValue reports whether a selector holds values that no label can have.
func HasInvalidLabelValue(s *corev1.NodeSelector) bool {
	for _, term := range s.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			for _, value := range e.Values {
				if len(utilvalidation.IsValidLabelValue(value)) > 0 {
					return true
				}
			}
		}
	}
	return false
}

func checkTerm(at *check.Part, t *corev1.NodeSelectorTerm, anyLabelValue bool) {
	for i := range t.MatchExpressions {
		checkExpression(at.Item("matchExpressions", i), &t.MatchExpressions[i], anyLabelValue)
	}
	for i := range t.MatchFields {
		checkField(at.Item("matchFields", i), &t.MatchFields[i])
	}
}

func checkExpression(at *check.Part, r *corev1.NodeSelectorRequirement, anyLabelValue bool) {
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		at.Present("values", len(r.Values) > 0, "must be specified when `operator` is 'In' or 'NotIn'")
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			at.Forbidden("values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		at.Present("values", len(r.Values) == 1, "must be specified single value when `operator` is 'Lt' or 'Gt'")
	default:
		at.Invalid("operator", r.Operator, "not a valid selector operator")
	}
	at.Format("key", r.Key, utilvalidation.IsQualifiedName)
	for i, value := range r.Values {
		if !anyLabelValue {
			at.Item("values", i).Format("", value, utilvalidation.IsValidLabelValue)
		}
	}
}

func checkField(at *check.Part, r *corev1.NodeSelectorRequirement) {
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		at.Present("values", len(r.Values) == 1, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
	default:
		at.Invalid("operator", r.Operator, "not a valid selector operator")
	}
	if r.Key != metav1.ObjectNameField {
		at.Invalid("key", r.Key, "not a valid field selector key")
		return
	}
	for i, name := range r.Values {
		at.Item("values", i).Format("", name, isNodeName)
	}
}

func isNodeName(name string) []string { return validation.NameIsDNSSubdomain(name, false) }

// deprecated maps deprecated node labels to their warnings.
var deprecated = map[string]string{
	corev1.LabelFailureDomainBetaRegion:             `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	corev1.LabelFailureDomainBetaZone:               `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	corev1.LabelInstanceType:                        `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"beta.kubernetes.io/arch":                       `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                         `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"app.kubernetes.io/created-by":                  `deprecated since v1.9`,
	"scheduler.alpha.kubernetes.io/preferAvoidPods": `deprecated since v1.22; use Taints and Tolerations instead`,
	"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
}

// DeprecatedLabel returns the warning for a deprecated node label, which names its replacement, or "".
func DeprecatedLabel(key string) string { return deprecated[key] }

// Warnings returns warnings for the deprecated labels of a selector.
func Warnings(s *corev1.NodeSelector, path *field.Path) []string {
	var warnings []string
	for i := range s.NodeSelectorTerms {
		warnings = append(warnings, TermWarnings(&s.NodeSelectorTerms[i], false, path.Child("nodeSelectorTerms").Index(i))...)
	}
	return warnings
}

// TermWarnings returns warnings for the deprecated labels of a term and, with labelValues, for values that no label can have.
func TermWarnings(t *corev1.NodeSelectorTerm, labelValues bool, path *field.Path) []string {
	var warnings []string
	for i, e := range t.MatchExpressions {
		at := path.Child("matchExpressions").Index(i)
		if msg := deprecated[e.Key]; msg != "" {
			warnings = append(warnings, fmt.Sprintf("%s: %s is %s", at.Child("key"), e.Key, msg))
		}
		for j, value := range e.Values {
			if !labelValues {
				break
			}
			for _, msg := range utilvalidation.IsValidLabelValue(value) {
				warnings = append(warnings, fmt.Sprintf("%s: %s is invalid, %s", at.Child("values").Index(j), value, msg))
			}
		}
	}
	return warnings
}
