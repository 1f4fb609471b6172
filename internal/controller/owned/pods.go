package owned

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Terminal reports whether a pod has succeeded or failed and will not run again.
func Terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Active reports whether a pod counts as a replica: it is neither terminal nor being deleted.
func Active(pod *corev1.Pod) bool { return !Terminal(pod) && pod.DeletionTimestamp == nil }

// Terminating reports whether a pod is being deleted and not terminal yet.
func Terminating(pod *corev1.Pod) bool { return !Terminal(pod) && pod.DeletionTimestamp != nil }

// ReadyCondition returns a pod's Ready condition, or nil.
func ReadyCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c
		}
	}
	return nil
}

// ReadySince reports whether a pod is ready, and when that last changed.
func ReadySince(pod *corev1.Pod) (since metav1.Time, ready bool) {
	if c := ReadyCondition(pod); c != nil {
		return c.LastTransitionTime, c.Status == corev1.ConditionTrue
	}
	return metav1.Time{}, false
}

// Ready reports whether a pod is ready.
func Ready(pod *corev1.Pod) bool {
	_, ready := ReadySince(pod)
	return ready
}
