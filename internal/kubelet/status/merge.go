package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const maxMessages = 12 << 10 // bytes of the termination messages of all containers of a pod

// normalize changes a status to what it will be when it is read back from the API: times have full seconds, messages are cut. It returns the status.
func normalize(pod *corev1.Pod, s *corev1.PodStatus) *corev1.PodStatus {
	limit := maxMessages / max(1, len(pod.Spec.Containers)+len(pod.Spec.InitContainers)+len(pod.Spec.EphemeralContainers))
	state := func(c *corev1.ContainerState) {
		if c.Running != nil {
			c.Running.StartedAt = c.Running.StartedAt.Rfc3339Copy()
		}
		if t := c.Terminated; t != nil {
			t.StartedAt, t.FinishedAt = t.StartedAt.Rfc3339Copy(), t.FinishedAt.Rfc3339Copy()
			t.Message = t.Message[:min(len(t.Message), limit)]
		}
	}
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			state(&list[i].State)
			state(&list[i].LastTerminationState)
		}
	}
	if s.StartTime != nil {
		t := s.StartTime.Rfc3339Copy()
		s.StartTime = &t
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		c.LastProbeTime, c.LastTransitionTime = c.LastProbeTime.Rfc3339Copy(), c.LastTransitionTime.Rfc3339Copy()
	}
	return s
}

// merge returns a status with what others have set in the pod's. A terminal phase is held back while containers may run.
func merge(pod *corev1.Pod, status *corev1.PodStatus, mayRun bool) *corev1.PodStatus {
	old, s := &pod.Status, status.DeepCopy()
	terminating := !IsTerminal(old.Phase) && IsTerminal(s.Phase)
	var conditions []corev1.PodCondition
	for _, c := range old.Conditions {
		if !byKubelet(c.Type) {
			conditions = append(conditions, c)
		}
	}
	for _, c := range s.Conditions {
		switch {
		case byKubelet(c.Type):
			conditions = append(conditions, c)
		case c.Type == corev1.DisruptionTarget && terminating && !mayRun:
			conditions = slices.DeleteFunc(conditions, func(o corev1.PodCondition) bool { return o.Type == c.Type })
			conditions = append(conditions, c)
		}
	}
	s.Conditions = conditions
	s.ResourceClaimStatuses, s.ExtendedResourceClaimStatus = old.ResourceClaimStatuses, old.ExtendedResourceClaimStatus
	s.NodeAllocatableResourceClaimStatuses, s.NominatedNodeName = old.NodeAllocatableResourceClaimStatuses, old.NominatedNodeName
	s.VolumeHealth = old.VolumeHealth
	if terminating && mayRun { // others take a terminal phase as a sign that nothing of the pod is in use
		s.Phase, s.Reason, s.Message = old.Phase, old.Reason, old.Message
	}
	if IsTerminal(s.Phase) {
		for i := range s.Conditions {
			c := &s.Conditions[i]
			if (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && c.Status == corev1.ConditionTrue {
				e := terminalCondition(s.Phase)
				c.Status, c.Reason, c.Message, c.LastTransitionTime = e.Status, e.Reason, "", metav1.Now().Rfc3339Copy()
			}
		}
	}
	return s
}

// equal reports whether the kubelet's parts of two statuses are equal, apart from the times of conditions.
func equal(a, b *corev1.PodStatus) bool {
	kubeletPart := func(s *corev1.PodStatus) (*corev1.PodStatus, map[corev1.PodConditionType]corev1.PodCondition) {
		c := *s
		c.Conditions, c.ResourceClaimStatuses, c.ExtendedResourceClaimStatus, c.NodeAllocatableResourceClaimStatuses = nil, nil, nil, nil
		c.NominatedNodeName, c.VolumeHealth = "", nil
		conditions := map[corev1.PodConditionType]corev1.PodCondition{}
		for _, o := range s.Conditions {
			if byKubelet(o.Type) || o.Type == corev1.DisruptionTarget {
				o.LastProbeTime, o.LastTransitionTime = metav1.Time{}, metav1.Time{}
				conditions[o.Type] = o
			}
		}
		return &c, conditions
	}
	x, conditionsX := kubeletPart(a)
	y, conditionsY := kubeletPart(b)
	return equality.Semantic.DeepEqual(conditionsX, conditionsY) && equality.Semantic.DeepEqual(x, y)
}
