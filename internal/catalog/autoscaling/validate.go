package autoscaling

import (
	"errors"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/quantity"
)

// refRules select how the apiVersion of a reference is validated.
type refRules struct{ anyVersion, coreGroup bool }

func validateHPA(h *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	target := refRules{coreGroup: h.Spec.ScaleTargetRef.Kind == "ReplicationController"}
	return validateSpec(&h.Spec, target, refRules{coreGroup: true})
}

func validateHPAUpdate(new, old *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	n, o := &new.Spec.ScaleTargetRef, &old.Spec.ScaleTargetRef
	target := refRules{
		anyVersion: n.APIVersion == o.APIVersion && n.Kind == o.Kind,
		coreGroup:  n.Kind == "ReplicationController"}
	object := refRules{coreGroup: true}
	for i := range old.Spec.Metrics {
		m := &old.Spec.Metrics[i]
		if m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil && object.wrong(&m.Object.DescribedObject) != nil {
			object.anyVersion = true
		}
	}
	return validateSpec(&new.Spec, target, object)
}

func validateSpec(s *autoscalingv2.HorizontalPodAutoscalerSpec, target, object refRules) field.ErrorList {
	spec := check.At(field.NewPath("spec"))
	if s.MinReplicas != nil && *s.MinReplicas < 0 {
		spec.Later().Invalid("minReplicas", *s.MinReplicas, "must be greater than or equal to 0")
	}
	switch {
	case s.MaxReplicas == 0:
		spec.Later().Required("maxReplicas", "")
	case s.MaxReplicas < 0:
		spec.Later().Invalid("maxReplicas", s.MaxReplicas, "must be greater than or equal to 1")
	}
	if s.MinReplicas != nil && s.MaxReplicas < *s.MinReplicas {
		spec.Invalid("maxReplicas", s.MaxReplicas, "must be greater than or equal to `minReplicas`")
	}
	validateReference(spec.Child("scaleTargetRef"), &s.ScaleTargetRef, target)
	beyondPods := false // whether there is a metric that exists without any pods
	for i := range s.Metrics {
		m := &s.Metrics[i]
		validateMetric(spec.Item("metrics", i), m, object)
		beyondPods = beyondPods || m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	}
	if s.MinReplicas != nil && *s.MinReplicas == 0 && !beyondPods {
		spec.Forbidden("metrics", "must specify at least one Object or External metric to support scaling to zero replicas")
	}
	if s.Behavior != nil {
		validateRules(spec.Child("behavior").Child("scaleUp"), s.Behavior.ScaleUp)
		validateRules(spec.Child("behavior").Child("scaleDown"), s.Behavior.ScaleDown)
	}
	return spec.Errors()
}

func validateReference(p *check.Part, ref *autoscalingv2.CrossVersionObjectReference, rules refRules) {
	givenSegment(p, "kind", ref.Kind, "")
	givenSegment(p, "name", ref.Name, "")
	if err := rules.wrong(ref); err != nil {
		p.Invalid("apiVersion", ref.APIVersion, err.Error())
	}
}

func (r refRules) wrong(ref *autoscalingv2.CrossVersionObjectReference) error {
	if r.anyVersion {
		return nil
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err == nil && gv.Group == "" && !r.coreGroup {
		return errors.New("apiVersion must specify API group")
	}
	return err
}

// givenSegment requires a value that is a valid path segment.
func givenSegment(p *check.Part, name, value, detail string) {
	if value == "" {
		p.Required(name, detail)
		return
	}
	p.Format(name, value, content.IsPathSegmentName)
}

const (
	maxStabilizationWindow = 3600
	maxPeriod              = 1800
)

func validateRules(p *check.Part, r *autoscalingv2.HPAScalingRules) {
	if r == nil {
		return
	}
	if w := r.StabilizationWindowSeconds; w != nil {
		if *w < 0 {
			p.Invalid("stabilizationWindowSeconds", *w, "must be greater than or equal to zero")
		}
		check.AtMost(p, "stabilizationWindowSeconds", *w, maxStabilizationWindow, fmt.Sprintf("must be less than or equal to %d", maxStabilizationWindow))
	}
	if r.SelectPolicy != nil {
		check.OneOf(p, "selectPolicy", *r.SelectPolicy, autoscalingv2.DisabledPolicySelect,
			autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)
	}
	p.Present("policies", len(r.Policies) > 0, "must specify at least one Policy")
	for i, policy := range r.Policies {
		item := p.Item("policies", i)
		check.OneOf(item, "type", policy.Type, autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)
		if policy.Value <= 0 {
			item.Invalid("value", policy.Value, "must be greater than zero")
		}
		if policy.PeriodSeconds <= 0 {
			item.Invalid("periodSeconds", policy.PeriodSeconds, "must be greater than zero")
		}
		check.AtMost(item, "periodSeconds", policy.PeriodSeconds, maxPeriod, fmt.Sprintf("must be less than or equal to %d", maxPeriod))
	}
	if r.Tolerance != nil {
		p.Add(quantity.Nonnegative(*r.Tolerance, p.Path("tolerance"))...)
	}
}

func validateHPAStatus(new, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	p := check.At(field.NewPath("status"))
	for i := range new.Status.Conditions {
		check.NonNegativeIfSet(p.Item("conditions", i), "observedGeneration", new.Status.Conditions[i].ObservedGeneration)
	}
	p.NonNegative("currentReplicas", int64(new.Status.CurrentReplicas))
	p.NonNegative("desiredReplicas", int64(new.Status.DesiredReplicas))
	return p.Errors()
}

// source is one of the sources of a metric: the type that names it, its field, and its validation.
type source struct {
	kind     autoscalingv2.MetricSourceType
	field    string
	given    bool
	validate func(*check.Part)
}

func validateMetric(p *check.Part, m *autoscalingv2.MetricSpec, object refRules) {
	p.Present("type", m.Type != "", "must specify a metric source type")
	check.OneOf(p, "type", m.Type, autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType,
		autoscalingv2.ObjectMetricSourceType, autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType)
	sources := []source{
		{autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil, func(p *check.Part) { validateObject(p, m.Object, object) }},
		{autoscalingv2.ExternalMetricSourceType, "external", m.External != nil, func(p *check.Part) { validateExternal(p, m.External) }},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(p *check.Part) { validatePods(p, m.Pods) }},
		{autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil, func(p *check.Part) { validateResource(p, m.Resource) }},
		{autoscalingv2.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil,
			func(p *check.Part) { validateContainerResource(p, m.ContainerResource) }},
	}
	given := 0
	for _, s := range sources {
		if !s.given {
			continue
		}
		if given++; given == 1 {
			s.validate(p.Child(s.field))
		}
	}
	for _, s := range sources {
		if s.kind == m.Type {
			p.Present(s.field, s.given, "must populate information for the given metric source")
		}
	}
	for _, s := range sources {
		if given > 1 && s.given && s.kind != m.Type {
			p.Forbidden(s.field, "must populate the given metric source only")
		}
	}
}

func validateObject(p *check.Part, s *autoscalingv2.ObjectMetricSource, rules refRules) {
	validateReference(p.Child("describedObject"), &s.DescribedObject, rules)
	givenSegment(p.Child("metric"), "name", s.Metric.Name, "must specify a metric name")
	target := validateTarget(p, &s.Target)
	target.Present("averageValue", s.Target.Value != nil || s.Target.AverageValue != nil, "must set either a target value or averageValue")
}

func validateExternal(p *check.Part, s *autoscalingv2.ExternalMetricSource) {
	givenSegment(p.Child("metric"), "name", s.Metric.Name, "must specify a metric name")
	target := validateTarget(p, &s.Target)
	target.Present("averageValue", s.Target.Value != nil || s.Target.AverageValue != nil,
		"must set either a target value for metric or a per-pod target")
	if s.Target.Value != nil && s.Target.AverageValue != nil {
		target.Forbidden("value", "may not set both a target value for metric and a per-pod target")
	}
}

func validatePods(p *check.Part, s *autoscalingv2.PodsMetricSource) {
	givenSegment(p.Child("metric"), "name", s.Metric.Name, "must specify a metric name")
	validateTarget(p, &s.Target).Present("averageValue", s.Target.AverageValue != nil, "must specify a positive target averageValue")
}

func validateResource(p *check.Part, s *autoscalingv2.ResourceMetricSource) {
	p.Present("name", s.Name != "", "must specify a resource name")
	validateResourceTarget(p, &s.Target)
}

func validateContainerResource(p *check.Part, s *autoscalingv2.ContainerResourceMetricSource) {
	if s.Name == "" {
		p.Required("name", "must specify a resource name")
	} else {
		p.Add(quantity.ContainerName(s.Name, p.Path("name"))...)
	}
	if s.Container == "" {
		p.Required("container", "must specify a container")
	} else {
		p.Format("container", s.Container, validation.IsDNS1123Label)
	}
	validateResourceTarget(p, &s.Target)
}

func validateResourceTarget(p *check.Part, t *autoscalingv2.MetricTarget) {
	target := validateTarget(p, t)
	target.Present("averageUtilization", t.AverageUtilization != nil || t.AverageValue != nil,
		"must set either a target raw value or a target utilization")
	if t.AverageUtilization != nil && t.AverageValue != nil {
		target.Forbidden("averageValue", "may not set both a target raw value and a target utilization")
	}
}

func validateTarget(p *check.Part, t *autoscalingv2.MetricTarget) *check.Part {
	target := p.Child("target")
	target.Present("type", t.Type != "", "must specify a metric target type")
	switch t.Type {
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	default:
		target.Invalid("type", t.Type, "must be either Utilization, Value, or AverageValue")
	}
	if t.Value != nil && t.Value.Sign() != 1 {
		target.Invalid("value", t.Value, "must be positive")
	}
	if t.AverageValue != nil && t.AverageValue.Sign() != 1 {
		target.Invalid("averageValue", t.AverageValue, "must be positive")
	}
	if t.AverageUtilization != nil && *t.AverageUtilization < 1 {
		target.Invalid("averageUtilization", *t.AverageUtilization, "must be greater than 0")
	}
	return target
}
