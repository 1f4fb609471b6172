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

// Matches reports whether a selector picks the pods of a template. It fails on a selector that makes no sense.
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

// Mismatch adds an error for labels that the workload's own selector would not find.
func Mismatch(spec *check.Part, t *corev1.PodTemplateSpec) {
	spec.Add(field.Invalid(spec.Path("template", "metadata", "labels"), t.Labels, "`selector` does not match template `labels`"))
}

// RunsForever adds an error for a template whose pods would end by themselves. Kind is the name of the workload's kind.
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

// SelectorGiven adds an error for a selector that is missing, malformed or empty. Kind is what the message calls the workload.
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

// NameWarnings warn of a name that cannot be the host name of the pods that are named after it.
func NameWarnings(name string) []string {
	msgs := validation.IsDNS1123Label(name)
	if len(msgs) == 0 {
		return nil
	}
	return []string{"metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; " +
		"a DNS label is recommended: " + printed(msgs)}
}

// Same reports whether two templates ask for the same pods.
func Same(a, b *corev1.PodTemplateSpec) bool { return apiequality.Semantic.DeepEqual(a, b) }
