package owned

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Ended pods will not run again.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Active pods count: they run, or are to.
func Active(pod *corev1.Pod) bool { return !Ended(pod) && pod.DeletionTimestamp == nil }

// Terminating pods are being deleted and have not ended.
func Terminating(pod *corev1.Pod) bool { return !Ended(pod) && pod.DeletionTimestamp != nil }

// ReadyCondition is what a pod says about being ready, nil if nothing.
func ReadyCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c
		}
	}
	return nil
}

// ReadySince says whether a pod is ready, and since when that is, or is not.
func ReadySince(pod *corev1.Pod) (since metav1.Time, ready bool) {
	if c := ReadyCondition(pod); c != nil {
		return c.LastTransitionTime, c.Status == corev1.ConditionTrue
	}
	return metav1.Time{}, false
}

// Ready says whether a pod is ready.
func Ready(pod *corev1.Pod) bool {
	_, ready := ReadySince(pod)
	return ready
}
