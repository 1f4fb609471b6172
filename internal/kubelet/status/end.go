package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podrules "skiff/internal/catalog/pod"
)

// Rejected returns the status of a pod that this node does not admit.
func Rejected(pod *corev1.Pod, reason, message string, now time.Time) *corev1.PodStatus {
	start := metav1.NewTime(now)
	s := &corev1.PodStatus{QOSClass: podrules.QOSClass(pod), Phase: corev1.PodFailed, Reason: reason, Message: "Pod was rejected: " + message,
		ObservedGeneration: pod.Generation, StartTime: &start}
	if pod.Status.StartTime != nil {
		s.StartTime = pod.Status.StartTime
	}
	return normalize(pod, s)
}

// Finished returns the last status of a pod that has terminated: a container whose exit was not observed has failed, and so has a pod without a terminal
// phase.
func Finished(pod *corev1.Pod, last *corev1.PodStatus) *corev1.PodStatus {
	s := last.DeepCopy()
	markLost := func(c *corev1.ContainerStatus) {
		if c.State.Terminated == nil {
			c.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: statusUnknown, ExitCode: lostExitCode,
				Message: "The container could not be located when the pod was terminated"}}
		}
	}
	if hasInitialized(pod) {
		for i := range s.ContainerStatuses {
			markLost(&s.ContainerStatuses[i])
		}
	}
	for i := range attempted(s.InitContainerStatuses) {
		markLost(&s.InitContainerStatuses[i])
	}
	if !IsTerminal(s.Phase) {
		s.Phase = corev1.PodFailed
	}
	return normalize(pod, s)
}

// hasInitialized reports whether the pod's status says that its containers may have been started.
func hasInitialized(pod *corev1.Pod) bool {
	if len(pod.Spec.InitContainers) == 0 || anyStarted(&pod.Status) {
		return true
	}
	n := len(pod.Status.InitContainerStatuses)
	if n == 0 {
		return false
	}
	last := &pod.Status.InitContainerStatuses[n-1]
	spec := container(pod.Spec.InitContainers, last.Name)
	if spec == nil {
		return false
	}
	if IsSidecar(spec) {
		return last.State.Running != nil && last.Started != nil && *last.Started
	}
	succeeded := func(s corev1.ContainerState) bool { return s.Terminated != nil && s.Terminated.ExitCode == 0 }
	return succeeded(last.State) || succeeded(last.LastTerminationState)
}

// attempted returns the init containers up to the last one that was ever started; the first one in any case.
func attempted(list []corev1.ContainerStatus) []corev1.ContainerStatus {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].State.Waiting == nil || list[i].LastTerminationState.Terminated != nil {
			return list[:i+1]
		}
	}
	return list[:min(1, len(list))]
}
