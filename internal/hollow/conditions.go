package hollow

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// finish returns the status of a pod with these container statuses, as a kubelet does.
func (r *report) finish(phase corev1.PodPhase, initial, containers []corev1.ContainerStatus) *corev1.PodStatus {
	s := r.pod.Status // what others set is kept
	s.Phase, s.InitContainerStatuses, s.ContainerStatuses = phase, initial, containers
	s.ObservedGeneration = r.pod.Generation
	s.HostIP, s.HostIPs = r.network.hostIP, []corev1.HostIP{{IP: r.network.hostIP}}
	if s.StartTime == nil {
		now := r.time()
		s.StartTime = &now
	}
	if s.PodIP == "" && phase == corev1.PodRunning {
		for _, ip := range r.network.addresses() {
			s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: ip})
		}
		s.PodIP = s.PodIPs[0].IP
	}
	s.Conditions = r.conditions(&s)
	return &s
}

// kubeletConditions holds the conditions that a kubelet sets, in the order it lists them.
var kubeletConditions = []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled}

// conditions returns the conditions of others, then those of the kubelet.
func (r *report) conditions(s *corev1.PodStatus) []corev1.PodCondition {
	before := make(map[corev1.PodConditionType]corev1.PodCondition, len(s.Conditions))
	var out []corev1.PodCondition
	isOurs := map[corev1.PodConditionType]bool{}
	for _, kind := range kubeletConditions {
		isOurs[kind] = true
	}
	for _, c := range s.Conditions {
		before[c.Type] = c
		if !isOurs[c.Type] {
			out = append(out, c)
		}
	}
	for _, kind := range kubeletConditions {
		c := r.condition(kind, s, before)
		c.Type, c.ObservedGeneration, c.LastTransitionTime = kind, r.pod.Generation, r.time()
		if was, ok := before[kind]; ok && was.Status == c.Status {
			c.LastTransitionTime, c.LastProbeTime = was.LastTransitionTime, was.LastProbeTime
		}
		out = append(out, c)
	}
	return out
}

func (r *report) condition(kind corev1.PodConditionType, s *corev1.PodStatus, others map[corev1.PodConditionType]corev1.PodCondition) corev1.PodCondition {
	switch kind {
	case corev1.PodReadyToStartContainers:
		return truth(s.Phase == corev1.PodRunning, "", "")
	case corev1.PodInitialized:
		return r.initialized(s)
	case corev1.ContainersReady:
		return r.containersReady(s)
	case corev1.PodReady:
		c := r.containersReady(s)
		if missing := r.notReadyGates(others); c.Status == corev1.ConditionTrue && missing != "" {
			return truth(false, "ReadinessGatesNotReady", missing)
		}
		return c
	}
	return truth(true, "", "") // PodScheduled
}

func truth(yes bool, reason, message string) corev1.PodCondition {
	status := corev1.ConditionFalse
	if yes {
		status = corev1.ConditionTrue
	}
	return corev1.PodCondition{Status: status, Reason: reason, Message: message}
}

func (r *report) initialized(s *corev1.PodStatus) corev1.PodCondition {
	if s.Phase == corev1.PodSucceeded {
		return truth(true, "PodCompleted", "")
	}
	var incomplete []string
	for _, c := range s.InitContainerStatuses {
		if !c.Ready && s.Phase == corev1.PodPending {
			incomplete = append(incomplete, c.Name)
		}
	}
	if len(incomplete) > 0 {
		return truth(false, "ContainersNotInitialized", fmt.Sprintf("containers with incomplete status: %s", incomplete))
	}
	return truth(true, "", "")
}

func (r *report) containersReady(s *corev1.PodStatus) corev1.PodCondition {
	switch s.Phase {
	case corev1.PodSucceeded:
		return truth(false, "PodCompleted", "")
	case corev1.PodFailed:
		return truth(false, "PodFailed", "")
	}
	var unready []string
	for i, c := range s.InitContainerStatuses {
		if !c.Ready && r.pod.Spec.InitContainers[i].RestartPolicy != nil {
			unready = append(unready, c.Name)
		}
	}
	for _, c := range s.ContainerStatuses {
		if !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	if len(unready) > 0 {
		return truth(false, "ContainersNotReady", fmt.Sprintf("containers with unready status: %s", unready))
	}
	return truth(true, "", "")
}

// notReadyGates describes which of the pod's readiness gates are not true, "" if all are.
func (r *report) notReadyGates(conditions map[corev1.PodConditionType]corev1.PodCondition) string {
	var closed []string
	for _, gate := range r.pod.Spec.ReadinessGates {
		c, ok := conditions[gate.ConditionType]
		switch {
		case !ok:
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case c.Status != corev1.ConditionTrue:
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, c.Status))
		}
	}
	return strings.Join(closed, ", ")
}
