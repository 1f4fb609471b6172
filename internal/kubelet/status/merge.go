package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const maxMessages = 12 << 10 // of all containers of a pod

// normalize makes a status what it will be when it comes back from the API: times have full seconds, messages a limit. It returns the status.
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

// merge is a status as it is to be in the API: what others set there stays.
func merge(pod *corev1.Pod, want *corev1.PodStatus, stillRuns bool) *corev1.PodStatus {
	old, s := &pod.Status, want.DeepCopy()
	ending := !Ended(old.Phase) && Ended(s.Phase)
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
		case c.Type == corev1.DisruptionTarget && ending && !stillRuns:
			conditions = slices.DeleteFunc(conditions, func(o corev1.PodCondition) bool { return o.Type == c.Type })
			conditions = append(conditions, c)
		}
	}
	s.Conditions = conditions
	s.ResourceClaimStatuses, s.ExtendedResourceClaimStatus = old.ResourceClaimStatuses, old.ExtendedResourceClaimStatus
	s.NodeAllocatableResourceClaimStatuses, s.NominatedNodeName = old.NodeAllocatableResourceClaimStatuses, old.NominatedNodeName
	s.VolumeHealth = old.VolumeHealth
	if ending && stillRuns { // others take the end as a sign that nothing of the pod is in use
		s.Phase, s.Reason, s.Message = old.Phase, old.Reason, old.Message
	}
	if Ended(s.Phase) {
		for i := range s.Conditions {
			c := &s.Conditions[i]
			if (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && c.Status == corev1.ConditionTrue {
				e := endedCondition(s.Phase)
				c.Status, c.Reason, c.Message, c.LastTransitionTime = e.Status, e.Reason, "", metav1.Now().Rfc3339Copy()
			}
		}
	}
	return s
}

// equal says whether two statuses say the same, as far as the kubelet has a say, times of conditions aside.
func equal(a, b *corev1.PodStatus) bool {
	mine := func(s *corev1.PodStatus) (*corev1.PodStatus, map[corev1.PodConditionType]corev1.PodCondition) {
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
	x, ofX := mine(a)
	y, ofY := mine(b)
	return equality.Semantic.DeepEqual(ofX, ofY) && equality.Semantic.DeepEqual(x, y)
}
