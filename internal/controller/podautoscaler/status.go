package podautoscaler

import (
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// condition sets a condition of the autoscaler.
func (e *evaluation) condition(kind autoscalingv2.HorizontalPodAutoscalerConditionType, holds bool, reason, message string) {
	status := corev1.ConditionFalse
	if holds {
		status = corev1.ConditionTrue
	}
	conditions := &e.hpa.Status.Conditions
	i := slices.IndexFunc(*conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool { return c.Type == kind })
	if i < 0 {
		*conditions = append(*conditions, autoscalingv2.HorizontalPodAutoscalerCondition{Type: kind})
		i = len(*conditions) - 1
	}
	c := &(*conditions)[i]
	if c.Status != status {
		c.LastTransitionTime = metav1.NewTime(e.now)
	}
	c.Status, c.Reason, c.Message = status, reason, message
}

func (e *evaluation) hasCondition(kind autoscalingv2.HorizontalPodAutoscalerConditionType) bool {
	return slices.ContainsFunc(e.hpa.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// setReplicas sets the numbers of the status, and the metrics that were read.
func (e *evaluation) setReplicas(current, desired int32) {
	s := &e.hpa.Status
	s.CurrentReplicas, s.DesiredReplicas, s.CurrentMetrics = current, desired, e.statuses
	s.ObservedGeneration = &e.hpa.Generation
}
