package resource

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"skiff/internal/catalog/check"
)

// checkTaint validates a taint. An unknown effect is accepted if the old taint has it.
func checkTaint(p part, t *resourcev1.DeviceTaint, old *resourcev1.DeviceTaint) {
	p.Add(metav1validation.ValidateLabelName(t.Key, p.Path("key"))...)
	p.Format("value", t.Value, content.IsLabelValue)
	switch {
	case old != nil && old.Effect == t.Effect:
	case t.Effect == "":
		p.declared.Required("effect", "")
	default:
		checkEffect(p.declared, t.Effect)
	}
}

func checkEffect(p *check.Part, effect resourcev1.DeviceTaintEffect) {
	check.OneOf(p, "effect", effect, resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone)
}

func checkToleration(p part, t *resourcev1.DeviceToleration) {
	if t.Key != "" {
		p.declared.Format("key", t.Key, content.IsLabelKey)
	}
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		if t.Value != "" {
			p.Invalid("value", t.Value, "must be empty for operator `Exists`")
		}
	case resourcev1.DeviceTolerationOpEqual:
		p.Format("value", t.Value, content.IsLabelValue)
	case "":
		p.declared.Required("operator", "")
	default:
		check.OneOf(p.declared, "operator", t.Operator, resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists)
	}
	if t.Effect != "" {
		checkEffect(p.declared, t.Effect)
	}
}
