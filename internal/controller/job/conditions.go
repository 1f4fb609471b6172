package job

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

func (s *state) condition(kind batchv1.JobConditionType, reason, message string) *batchv1.JobCondition {
	return &batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastProbeTime: *s.time(), LastTransitionTime: *s.time(), Reason: reason, Message: message}
}

func find(list []batchv1.JobCondition, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range list {
		if list[i].Type == kind {
			return &list[i]
		}
	}
	return nil
}

// isTrue returns a condition if its status is True, or nil.
func isTrue(list []batchv1.JobCondition, kind batchv1.JobConditionType) *batchv1.JobCondition {
	if c := find(list, kind); c != nil && c.Status == corev1.ConditionTrue {
		return c
	}
	return nil
}

// setCondition sets a condition of the Job and reports whether it changed. A condition that was never set is not set to False.
func (s *state) setCondition(kind batchv1.JobConditionType, status corev1.ConditionStatus, reason, message string) bool {
	list := &s.next.Status.Conditions
	c := find(*list, kind)
	switch {
	case c == nil && status == corev1.ConditionFalse, c != nil && c.Status == status && c.Reason == reason && c.Message == message:
		return false
	case c == nil:
		*list = append(*list, batchv1.JobCondition{})
		c = &(*list)[len(*list)-1]
	}
	*c = *s.condition(kind, reason, message)
	c.Status = status
	return true
}
