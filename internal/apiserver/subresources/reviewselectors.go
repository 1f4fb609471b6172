package subresources

import (
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"skiff/internal/apiserver/authz"
)

// readSelectors sets the selectors of attributes to those of a review, and returns what was wrong with them. A requirement that cannot be parsed is
// left out: the attributes then select more than was asked about, so that an answer of "allowed" still holds.
func readSelectors(a *authz.Attributes, r *authorizationv1.ResourceAttributes) []string {
	var problems []string
	note := func(name string, failed bool, selector string) {
		switch {
		case failed && selector != "":
			problems = append(problems, fmt.Sprintf("spec.resourceAttributes.%s partially ignored due to parse error", name))
		case failed:
			problems = append(problems, fmt.Sprintf("spec.resourceAttributes.%s ignored due to parse error", name))
		}
	}
	if s := r.FieldSelector; s != nil {
		selector, ok := readFieldSelector(s)
		a.FieldSelector = selector
		note("fieldSelector", !ok, selector)
	}
	if s := r.LabelSelector; s != nil {
		selector, ok := readLabelSelector(s)
		a.LabelSelector = selector
		note("labelSelector", !ok, selector)
	}
	return problems
}

func readFieldSelector(s *authorizationv1.FieldSelectorAttributes) (selector string, ok bool) {
	if len(s.Requirements) == 0 {
		parsed, err := fields.ParseSelector(s.RawSelector)
		if err != nil {
			return "", false
		}
		return parsed.String(), true
	}
	var tests []fields.Selector
	ok = true
	for _, r := range s.Requirements {
		switch {
		case len(r.Values) != 1:
			ok = false // a field selector has no form for several values
		case r.Operator == metav1.FieldSelectorOpIn:
			tests = append(tests, fields.OneTermEqualSelector(r.Key, r.Values[0]))
		case r.Operator == metav1.FieldSelectorOpNotIn:
			tests = append(tests, fields.OneTermNotEqualSelector(r.Key, r.Values[0]))
		default:
			ok = false
		}
	}
	return fields.AndSelectors(tests...).String(), ok
}

var labelOperators = map[metav1.LabelSelectorOperator]selection.Operator{
	metav1.LabelSelectorOpIn: selection.In, metav1.LabelSelectorOpNotIn: selection.NotIn,
	metav1.LabelSelectorOpExists: selection.Exists, metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist,
}

func readLabelSelector(s *authorizationv1.LabelSelectorAttributes) (selector string, ok bool) {
	if len(s.Requirements) == 0 {
		parsed, err := labels.Parse(s.RawSelector)
		if err != nil {
			return "", false
		}
		return parsed.String(), true
	}
	tests := labels.NewSelector()
	ok = true
	for _, r := range s.Requirements {
		test, err := labels.NewRequirement(r.Key, labelOperators[r.Operator], r.Values)
		if err != nil {
			ok = false
			continue
		}
		tests = tests.Add(*test)
	}
	return tests.String(), ok
}
