package autoscaling

import (
	"encoding/json"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/catalog/check"
)

// These annotations of v1 hold, as JSON, what v1 has no fields for.
const (
	metricsAnnotation        = "autoscaling.alpha.kubernetes.io/metrics"
	currentMetricsAnnotation = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation     = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation       = "autoscaling.alpha.kubernetes.io/behavior"
)

// viewAnnotations are never stored. The last two are of versions that were removed.
var viewAnnotations = []string{metricsAnnotation, currentMetricsAnnotation, conditionsAnnotation, behaviorAnnotation,
	"autoscaling.alpha.kubernetes.io/scale-down-tolerance", "autoscaling.alpha.kubernetes.io/scale-up-tolerance"}

func toV2(h *autoscalingv1.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
	out := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: h.ObjectMeta}
	out.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference(h.Spec.ScaleTargetRef)
	out.Spec.MinReplicas, out.Spec.MaxReplicas = h.Spec.MinReplicas, h.Spec.MaxReplicas
	out.Status = statusToV2(&h.Status)

	var metrics []autoscalingv1.MetricSpec
	if carried(h, metricsAnnotation, &metrics) {
		out.Spec.Metrics = each(metrics, metricToV2)
	}
	if percent := h.Spec.TargetCPUUtilizationPercentage; percent != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuUtilization(*percent))
	}
	if len(out.Spec.Metrics) == 0 {
		out.Spec.Metrics = []autoscalingv2.MetricSpec{cpuUtilization(defaultCPUUtilization)}
	}
	var behavior autoscalingv2.HorizontalPodAutoscalerBehavior
	if carried(h, behaviorAnnotation, &behavior) && behavior != (autoscalingv2.HorizontalPodAutoscalerBehavior{}) {
		out.Spec.Behavior = &behavior
	}
	var current []autoscalingv1.MetricStatus
	if carried(h, currentMetricsAnnotation, &current) {
		out.Status.CurrentMetrics = each(current, currentToV2)
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	if carried(h, conditionsAnnotation, &conditions) {
		out.Status.Conditions = each(conditions, conditionToV2)
	}
	out.Annotations = withoutViewAnnotations(h.Annotations)
	return out
}

func toV1(h *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv1.HorizontalPodAutoscaler {
	out := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: h.ObjectMeta}
	out.Spec.ScaleTargetRef = autoscalingv1.CrossVersionObjectReference(h.Spec.ScaleTargetRef)
	out.Spec.MinReplicas, out.Spec.MaxReplicas = h.Spec.MinReplicas, h.Spec.MaxReplicas
	out.Status = statusToV1(&h.Status)
	out.Annotations = withoutViewAnnotations(h.Annotations)

	var others []autoscalingv1.MetricSpec
	for i := range h.Spec.Metrics {
		m := &h.Spec.Metrics[i]
		switch {
		case !isCPUUtilization(m):
			others = append(others, metricToV1(m))
		case out.Spec.TargetCPUUtilizationPercentage == nil:
			percent := *m.Resource.Target.AverageUtilization
			out.Spec.TargetCPUUtilizationPercentage = &percent
		}
	}
	if len(others) > 0 {
		carry(out, metricsAnnotation, others)
	}
	if len(h.Status.CurrentMetrics) > 0 {
		carry(out, currentMetricsAnnotation, each(h.Status.CurrentMetrics, currentToV1))
	}
	if h.Spec.Behavior != nil {
		carry(out, behaviorAnnotation, check.Internal(h.Spec.Behavior))
	}
	if len(h.Status.Conditions) > 0 {
		carry(out, conditionsAnnotation, each(h.Status.Conditions, conditionToV1))
	}
	return out
}

// isCPUUtilization reports whether a metric is the one that v1 has a field for.
func isCPUUtilization(m *autoscalingv2.MetricSpec) bool {
	return m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU &&
		m.Resource.Target.AverageUtilization != nil
}

// carried decodes an annotation. A malformed one counts as missing.
func carried(h *autoscalingv1.HorizontalPodAutoscaler, annotation string, into any) bool {
	text, ok := h.Annotations[annotation]
	return ok && json.Unmarshal([]byte(text), into) == nil
}

func carry(h *autoscalingv1.HorizontalPodAutoscaler, annotation string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		return // every API type can be encoded
	}
	if h.Annotations == nil {
		h.Annotations = map[string]string{}
	}
	h.Annotations[annotation] = string(text)
}

// withoutViewAnnotations returns a copy of the map without the view's annotations; the map itself may be shared.
func withoutViewAnnotations(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	for _, a := range viewAnnotations {
		delete(out, a)
	}
	return out
}

func statusToV2(s *autoscalingv1.HorizontalPodAutoscalerStatus) autoscalingv2.HorizontalPodAutoscalerStatus {
	out := autoscalingv2.HorizontalPodAutoscalerStatus{ObservedGeneration: s.ObservedGeneration, LastScaleTime: s.LastScaleTime,
		CurrentReplicas: s.CurrentReplicas, DesiredReplicas: s.DesiredReplicas}
	if percent := s.CurrentCPUUtilizationPercentage; percent != nil {
		out.CurrentMetrics = []autoscalingv2.MetricStatus{{Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{Name: corev1.ResourceCPU,
				Current: autoscalingv2.MetricValueStatus{AverageUtilization: percent}}}}
	}
	return out
}

func statusToV1(s *autoscalingv2.HorizontalPodAutoscalerStatus) autoscalingv1.HorizontalPodAutoscalerStatus {
	out := autoscalingv1.HorizontalPodAutoscalerStatus{ObservedGeneration: s.ObservedGeneration, LastScaleTime: s.LastScaleTime,
		CurrentReplicas: s.CurrentReplicas, DesiredReplicas: s.DesiredReplicas}
	for i := range s.CurrentMetrics {
		m := &s.CurrentMetrics[i]
		if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU &&
			m.Resource.Current.AverageUtilization != nil {
			out.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
	}
	return out
}

func conditionToV2(c *autoscalingv1.HorizontalPodAutoscalerCondition) autoscalingv2.HorizontalPodAutoscalerCondition {
	return autoscalingv2.HorizontalPodAutoscalerCondition{Type: autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
		LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message, ObservedGeneration: c.ObservedGeneration}
}

func conditionToV1(c *autoscalingv2.HorizontalPodAutoscalerCondition) autoscalingv1.HorizontalPodAutoscalerCondition {
	return autoscalingv1.HorizontalPodAutoscalerCondition{Type: autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
		LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message, ObservedGeneration: c.ObservedGeneration}
}

func each[A, B any](list []A, convert func(*A) B) []B {
	out := make([]B, len(list))
	for i := range list {
		out[i] = convert(&list[i])
	}
	return out
}
