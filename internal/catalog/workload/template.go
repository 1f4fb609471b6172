package workload

import (
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

// Matches reports whether a selector matches the labels of a template. It returns an error for an invalid selector.
func Matches(s *metav1.LabelSelector, t *corev1.PodTemplateSpec) (bool, error) {
	if s != nil && len(s.MatchExpressions) == 0 && check.PlainLabels(s.MatchLabels) {
		for key, value := range s.MatchLabels {
			if have, found := t.Labels[key]; !found || have != value {
				return false, nil
			}
		}
		return true, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return false, err
	}
	return selector.Matches(labels.Set(t.Labels)), nil
}

// Mismatch adds the error that the template's labels do not match the workload's selector.
func Mismatch(spec *check.Part, t *corev1.PodTemplateSpec) {
	spec.Add(field.Invalid(spec.Path("template", "metadata", "labels"), t.Labels, "`selector` does not match template `labels`"))
}

// RunsForever adds errors for a template whose pods would terminate by themselves. kind is the workload's kind.
func RunsForever(spec *check.Part, t *corev1.PodTemplateSpec, kind string) {
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		spec.Add(field.NotSupported(spec.Path("template", "spec", "restartPolicy"), t.Spec.RestartPolicy,
			[]corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		spec.Add(field.Forbidden(spec.Path("template", "spec", "activeDeadlineSeconds"),
			"activeDeadlineSeconds in "+kind+" is not Supported"))
	}
}

// SelectorGiven adds an error if a selector is missing, invalid or empty. kind is the workload's name in the message.
func SelectorGiven(spec *check.Part, s *metav1.LabelSelector, kind string) {
	if s == nil {
		spec.Required("selector", "")
		return
	}
	spec.StrictSelector("selector", s)
	if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		spec.Invalid("selector", s, "empty selector is invalid for "+kind)
	}
}

// NameWarnings warns of a name that cannot be part of the host names of the workload's pods.
func NameWarnings(name string) []string {
	msgs := validation.IsDNS1123Label(name)
	if len(msgs) == 0 {
		return nil
	}
	return []string{"metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; " +
		"a DNS label is recommended: " + printed(msgs)}
}

// Same reports whether two templates are semantically equal.
func Same(a, b *corev1.PodTemplateSpec) bool { return apiequality.Semantic.DeepEqual(a, b) }
