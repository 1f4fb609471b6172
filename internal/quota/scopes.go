package quota

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// InScopes reports whether an object is in all scopes of a quota. A quota without scopes applies to all objects.
func InScopes(e Evaluator, spec *corev1.ResourceQuotaSpec, obj Object) (bool, error) {
	for _, scope := range spec.Scopes {
		selector := corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}
		if in, err := e.InScope(selector, obj); err != nil || !in {
			return false, err
		}
	}
	if spec.ScopeSelector == nil {
		return true, nil
	}
	for _, selector := range spec.ScopeSelector.MatchExpressions {
		if in, err := e.InScope(selector, obj); err != nil || !in {
			return false, err
		}
	}
	return true, nil
}

// selects reports whether a selector matches one of the values that an object has for its scope, or the absence of a value if there is none.
func selects(s corev1.ScopedResourceSelectorRequirement, values ...string) (bool, error) {
	var operator selection.Operator
	switch s.Operator {
	case corev1.ScopeSelectorOpIn:
		operator = selection.In
	case corev1.ScopeSelectorOpNotIn:
		operator = selection.NotIn
	case corev1.ScopeSelectorOpExists:
		operator = selection.Exists
	case corev1.ScopeSelectorOpDoesNotExist:
		operator = selection.DoesNotExist
	default:
		return false, fmt.Errorf("failed to parse and convert selector: %q is not a valid scope selector operator", s.Operator)
	}
	requirement, err := labels.NewRequirement(string(s.ScopeName), operator, s.Values)
	if err != nil {
		return false, fmt.Errorf("failed to parse and convert selector: %w", err)
	}
	if len(values) == 0 {
		return requirement.Matches(labels.Set{}), nil
	}
	return slices.ContainsFunc(values, func(value string) bool {
		return requirement.Matches(labels.Set{string(s.ScopeName): value})
	}), nil
}
