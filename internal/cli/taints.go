package cli

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// taints is the value of a flag such as KEY=VALUE:NoSchedule,KEY:NoExecute.
type taints []corev1.Taint

// Set parses the value.
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

// String returns the form that Set parses.
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

// Type returns the name of the flag's type, for its help.
func (t *taints) Type() string { return "taints" }
