package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

const (
	maxPolicyRules      = 20
	maxExitCodes        = 255
	maxConditionsOfRule = 20
)

func validateFailurePolicy(p *check.Part, s *batchv1.JobSpec) {
	rules := s.PodFailurePolicy.Rules
	if len(rules) > maxPolicyRules {
		p.Add(field.TooMany(p.Path("rules"), len(rules), maxPolicyRules))
	}
	containers := sets.New[string]()
	for _, list := range [][]corev1.Container{s.Template.Spec.Containers, s.Template.Spec.InitContainers} {
		for i := range list {
			containers.Insert(list[i].Name)
		}
	}
	for i := range rules {
		rule := p.Item("rules", i)
		validateFailureAction(rule, rules[i].Action, s)
		exitCodes, conditions := rules[i].OnExitCodes, rules[i].OnPodConditions
		if exitCodes != nil {
			validateExitCodes(rule.Child("onExitCodes"), exitCodes, containers)
		}
		validateFailureConditions(rule, conditions)
		switch {
		case exitCodes != nil && len(conditions) > 0:
			rule.Invalid("", field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported")
		case exitCodes == nil && len(conditions) == 0:
			rule.Invalid("", field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required")
		}
	}
}

func validateFailureAction(rule *check.Part, action batchv1.PodFailurePolicyAction, s *batchv1.JobSpec) {
	if action == batchv1.PodFailurePolicyActionFailIndex {
		if s.BackoffLimitPerIndex == nil {
			rule.Invalid("action", action, "requires the backoffLimitPerIndex to be set")
		}
		return
	}
	oneOfGiven(rule, "action", action, batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
		batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore)
}

func validateFailureConditions(rule *check.Part, patterns []batchv1.PodFailurePolicyOnPodConditionsPattern) {
	if len(patterns) > maxConditionsOfRule {
		rule.Add(field.TooMany(rule.Path("onPodConditions"), len(patterns), maxConditionsOfRule))
	}
	for i, pattern := range patterns {
		p := rule.Item("onPodConditions", i)
		p.Format("type", string(pattern.Type), validation.IsQualifiedName)
		oneOfGiven(p, "status", pattern.Status, corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)
	}
}

func validateExitCodes(p *check.Part, r *batchv1.PodFailurePolicyOnExitCodesRequirement, containers sets.Set[string]) {
	oneOfGiven(p, "operator", r.Operator, batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	if r.ContainerName != nil && !containers.Has(*r.ContainerName) {
		p.Invalid("containerName", *r.ContainerName, "must be one of the container or initContainer names in the pod template")
	}
	switch {
	case len(r.Values) == 0:
		p.Invalid("values", r.Values, "at least one value is required")
	case len(r.Values) > maxExitCodes:
		p.Add(field.TooMany(p.Path("values"), len(r.Values), maxExitCodes))
	}
	ordered := true
	seen := sets.New[int32]()
	for i, code := range r.Values {
		if code == 0 && r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
			p.Item("values", i).Invalid("", code, "must not be 0 for the In operator")
		}
		if seen.Has(code) {
			p.Add(field.Duplicate(p.Path("values").Index(i), code))
		}
		seen.Insert(code)
		ordered = ordered && (i == 0 || r.Values[i-1] <= code)
	}
	if !ordered {
		p.Invalid("values", r.Values, "must be ordered")
	}
}

// oneOfGiven adds an error if a value is missing or not among those supported, which are in alphabetical order.
func oneOfGiven[S ~string](p *check.Part, name string, value S, supported ...S) {
	if value == "" {
		p.Required(name, fmt.Sprintf("valid values: %q", supported))
		return
	}
	check.OneOf(p, name, value, supported...)
}

func validateSuccessPolicy(p *check.Part, s *batchv1.JobSpec) {
	rules := s.SuccessPolicy.Rules
	p.Present("rules", len(rules) > 0, "at least one rules must be specified when the successPolicy is specified")
	if len(rules) > maxPolicyRules {
		p.Add(field.TooMany(p.Path("rules"), len(rules), maxPolicyRules))
	}
	for i := range rules {
		validateSuccessRule(p.Item("rules", i), &rules[i], valueOr(s.Completions, 0))
	}
}

func validateSuccessRule(p *check.Part, rule *batchv1.SuccessPolicyRule, completions int32) {
	p.Present("", rule.SucceededCount != nil || rule.SucceededIndexes != nil,
		"at least one of succeededCount or succeededIndexes must be specified")
	var indexes int32
	if text := rule.SucceededIndexes; text != nil {
		if len(*text) > maxIndexesInSuccessRule {
			p.Add(field.TooLong(p.Path("succeededIndexes"), "", maxIndexesInSuccessRule))
		}
		var err error
		if indexes, err = countIndexes(*text, completions); err != nil {
			p.Invalid("succeededIndexes", *text, "error parsing succeededIndexes: "+err.Error())
		}
	}
	count := rule.SucceededCount
	if count == nil {
		return
	}
	p.NonNegative("succeededCount", int64(*count))
	if *count > completions {
		p.Invalid("succeededCount", *count, fmt.Sprintf(
			"must be less than or equal to %d (the number of specified completions)", completions))
	}
	if rule.SucceededIndexes != nil && *count > indexes {
		p.Invalid("succeededCount", *count, fmt.Sprintf(
			"must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", indexes))
	}
}
