package autoscaling

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"skiff/internal/catalog"
)

func hpaColumns() []catalog.Column[autoscalingv2.HorizontalPodAutoscaler] {
	type hpa = autoscalingv2.HorizontalPodAutoscaler
	spec, status := autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc(), autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()
	return []catalog.Column[hpa]{
		catalog.NameColumn[hpa](),
		{Name: "Reference", Description: spec["scaleTargetRef"],
			Cell: func(h *hpa, _ time.Time) any { return h.Spec.ScaleTargetRef.Kind + "/" + h.Spec.ScaleTargetRef.Name }},
		{Name: "Targets", Description: spec["metrics"],
			Cell: func(h *hpa, _ time.Time) any { return targets(h.Spec.Metrics, h.Status.CurrentMetrics) }},
		{Name: "MinPods", Description: spec["minReplicas"], Cell: func(h *hpa, _ time.Time) any {
			if h.Spec.MinReplicas == nil {
				return "<unset>"
			}
			return strconv.Itoa(int(*h.Spec.MinReplicas))
		}},
		{Name: "MaxPods", Description: spec["maxReplicas"], Cell: func(h *hpa, _ time.Time) any { return int64(h.Spec.MaxReplicas) }},
		{Name: "Replicas", Description: status["currentReplicas"],
			Cell: func(h *hpa, _ time.Time) any { return int64(h.Status.CurrentReplicas) }},
		catalog.AgeColumn[hpa](),
	}
}

// shownTargets is the number of metrics in the column.
const shownTargets = 2

func targets(specs []autoscalingv2.MetricSpec, statuses []autoscalingv2.MetricStatus) string {
	if len(specs) == 0 {
		return "<none>"
	}
	var shown []string
	for i := range specs[:min(len(specs), shownTargets)] {
		var status autoscalingv2.MetricStatus
		if i < len(statuses) {
			status = statuses[i]
		}
		shown = append(shown, targetOf(&specs[i], &status))
	}
	text := strings.Join(shown, ", ")
	if more := len(specs) - shownTargets; more > 0 {
		text += fmt.Sprintf(" + %d more...", more)
	}
	return text
}

// targetOf returns a metric as "current/target".
func targetOf(m *autoscalingv2.MetricSpec, s *autoscalingv2.MetricStatus) string {
	var current *autoscalingv2.MetricValueStatus
	switch m.Type {
	case autoscalingv2.ExternalMetricSourceType:
		if s.External != nil {
			current = &s.External.Current
		}
		return valueTarget(&m.External.Target, current)
	case autoscalingv2.ObjectMetricSourceType:
		if s.Object != nil {
			current = &s.Object.Current
		}
		return valueTarget(&m.Object.Target, current)
	case autoscalingv2.PodsMetricSourceType:
		if s.Pods != nil {
			current = &s.Pods.Current
		}
		return averageOf(current) + "/" + m.Pods.Target.AverageValue.String()
	case autoscalingv2.ResourceMetricSourceType:
		if s.Resource != nil {
			current = &s.Resource.Current
		}
		return string(m.Resource.Name) + ": " + usageTarget(&m.Resource.Target, current)
	case autoscalingv2.ContainerResourceMetricSourceType:
		if s.ContainerResource != nil {
			current = &s.ContainerResource.Current
		}
		return string(m.ContainerResource.Name) + ": " + usageTarget(&m.ContainerResource.Target, current)
	}
	return "<unknown type>"
}

const unknown = "<unknown>"

func valueTarget(t *autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus) string {
	if t.AverageValue != nil {
		now := unknown
		if current != nil && current.AverageValue != nil {
			now = current.AverageValue.String()
		}
		return now + "/" + t.AverageValue.String() + " (avg)"
	}
	now := unknown
	if current != nil {
		now = current.Value.String()
	}
	return now + "/" + t.Value.String()
}

func usageTarget(t *autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus) string {
	if t.AverageValue != nil {
		return averageOf(current) + "/" + t.AverageValue.String()
	}
	now, want := unknown, "<auto>"
	if current != nil && current.AverageUtilization != nil {
		now = strconv.Itoa(int(*current.AverageUtilization)) + "%"
	}
	if t.AverageUtilization != nil {
		want = strconv.Itoa(int(*t.AverageUtilization)) + "%"
	}
	return now + "/" + want
}

func averageOf(current *autoscalingv2.MetricValueStatus) string {
	if current == nil {
		return unknown
	}
	return current.AverageValue.String()
}
