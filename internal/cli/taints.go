package cli

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// taints is a flag like KEY=VALUE:NoSchedule,KEY:NoExecute.
type taints []corev1.Taint

// Set reads it.
func (t *taints) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		rest, effect, ok := strings.Cut(part, ":")
		if !ok {
			return fmt.Errorf("%q is not like KEY=VALUE:NoSchedule", part)
		}
		taint := corev1.Taint{Effect: corev1.TaintEffect(effect)}
		taint.Key, taint.Value, _ = strings.Cut(rest, "=")
		switch taint.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			return fmt.Errorf("the effect %q is none of NoSchedule, PreferNoSchedule and NoExecute", effect)
		}
		problems := validation.IsQualifiedName(taint.Key)
		if problems = append(problems, validation.IsValidLabelValue(taint.Value)...); len(problems) > 0 {
			return fmt.Errorf("%q: %s", part, problems[0])
		}
		*t = append(*t, taint)
	}
	return nil
}

// String is how a flag shows it.
func (t *taints) String() string {
	var out []string
	for _, taint := range *t {
		text := taint.Key
		if taint.Value != "" {
			text += "=" + taint.Value
		}
		out = append(out, text+":"+string(taint.Effect))
	}
	return strings.Join(out, ",")
}

// Type is what a flag's help calls it.
func (t *taints) Type() string { return "taints" }
