package status

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/kubelet/cri"
)

// kubeletConditions are the conditions that only the kubelet sets.
var kubeletConditions = []corev1.PodConditionType{corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized, corev1.ContainersReady, corev1.PodResizeInProgress,
	corev1.PodResizePending, corev1.PodReadyToStartContainers, corev1.AllContainersRestarting}

// byKubelet reports whether only the kubelet sets a condition.
func byKubelet(kind corev1.PodConditionType) bool { return slices.Contains(kubeletConditions, kind) }

// setConditions keeps the conditions of others and sets the kubelet's.
func (in *Input) setConditions(s *corev1.PodStatus) {
	for _, c := range in.Pod.Status.Conditions {
		if !byKubelet(c.Type) {
			s.Conditions = append(s.Conditions, c)
		}
	}
	if !in.Terminated {
		s.Conditions = append(s.Conditions, in.Resize...)
	}
	if c := find(in.Old.Conditions, corev1.DisruptionTarget); c != nil {
		s.Conditions = slices.DeleteFunc(s.Conditions, func(o corev1.PodCondition) bool { return o.Type == c.Type })
		s.Conditions = append(s.Conditions, *c)
	}
	add := func(kind corev1.PodConditionType, c corev1.PodCondition) {
		c.Type, c.ObservedGeneration = kind, in.Pod.Generation
		s.Conditions = append(s.Conditions, c)
	}
	if in.DisruptionTarget && find(s.Conditions, corev1.DisruptionTarget) == nil {
		c := condition(true, corev1.PodReasonTerminationByKubelet, in.Failed.Message)
		c.Type, c.ObservedGeneration = corev1.DisruptionTarget, in.Pod.Generation
		s.Conditions = append(s.Conditions, c)
	}
	add(corev1.PodReadyToStartContainers, in.readyToStart())
	add(corev1.PodInitialized, in.initialized(s))
	add(corev1.PodReady, in.ready(s))
	add(corev1.ContainersReady, in.containersReady(s))
	add(corev1.PodScheduled, condition(true, "", ""))
	if couldRestartAll(in.Pod) {
		add(corev1.AllContainersRestarting, in.allRestarting(s))
	}
}

func condition(yes bool, reason, message string) corev1.PodCondition {
	c := corev1.PodCondition{Status: corev1.ConditionFalse, Reason: reason, Message: message}
	if yes {
		c.Status = corev1.ConditionTrue
	}
	return c
}

func (in *Input) readyToStart() corev1.PodCondition {
	if need := in.Runtime.SandboxNeed(in.Pod.Spec.HostNetwork); need.Needed {
		return condition(false, "PodSandboxNotReady", need.Reason)
	}
	return condition(true, "", "")
}

func (in *Input) initialized(s *corev1.PodStatus) corev1.PodCondition {
	var incomplete []string
	for i := range in.Pod.Spec.InitContainers {
		c := &in.Pod.Spec.InitContainers[i]
		cs := statusOf(s.InitContainerStatuses, c.Name)
		if done := IsSidecar(c) && cs.Started != nil && *cs.Started || !IsSidecar(c) && cs.Ready; !done {
			incomplete = append(incomplete, c.Name)
		}
	}
	switch {
	case s.Phase == corev1.PodSucceeded:
		return condition(true, "PodCompleted", "")
	case len(incomplete) == 0 || anyStarted(s):
		return condition(true, "", "")
	}
	if c := find(in.Old.Conditions, corev1.PodInitialized); c != nil && c.Status == corev1.ConditionTrue {
		return condition(true, "", "")
	}
	return condition(false, "ContainersNotInitialized", fmt.Sprintf("containers with incomplete status: %s", incomplete))
}

// anyStarted reports whether a container of the pod was ever started.
func anyStarted(s *corev1.PodStatus) bool {
	return slices.ContainsFunc(s.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.LastTerminationState.Terminated != nil || c.State.Waiting == nil
	})
}

func (in *Input) containersReady(s *corev1.PodStatus) corev1.PodCondition {
	if IsTerminal(s.Phase) {
		return terminalCondition(s.Phase)
	}
	var unready []string
	for i := range in.Pod.Spec.InitContainers {
		if c := &in.Pod.Spec.InitContainers[i]; IsSidecar(c) && !statusOf(s.InitContainerStatuses, c.Name).Ready {
			unready = append(unready, c.Name)
		}
	}
	for i := range in.Pod.Spec.Containers {
		if name := in.Pod.Spec.Containers[i].Name; !statusOf(s.ContainerStatuses, name).Ready {
			unready = append(unready, name)
		}
	}
	if len(unready) > 0 {
		return condition(false, "ContainersNotReady", fmt.Sprintf("containers with unready status: %s", unready))
	}
	return condition(true, "", "")
}

func terminalCondition(p corev1.PodPhase) corev1.PodCondition {
	if p == corev1.PodFailed {
		return condition(false, "PodFailed", "")
	}
	return condition(false, "PodCompleted", "")
}

func (in *Input) ready(s *corev1.PodStatus) corev1.PodCondition {
	c := in.containersReady(s)
	if c.Status != corev1.ConditionTrue {
		return c
	}
	var notReady []string
	for _, gate := range in.Pod.Spec.ReadinessGates {
		switch g := find(s.Conditions, gate.ConditionType); {
		case g == nil:
			notReady = append(notReady, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case g.Status != corev1.ConditionTrue:
			notReady = append(notReady, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, g.Status))
		}
	}
	if len(notReady) > 0 {
		return condition(false, "ReadinessGatesNotReady", strings.Join(notReady, ", "))
	}
	return c
}

// couldRestartAll reports whether a container of the pod has a RestartAllContainers rule.
func couldRestartAll(pod *corev1.Pod) bool {
	could := func(c corev1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	}
	return slices.ContainsFunc(pod.Spec.InitContainers, could) || slices.ContainsFunc(pod.Spec.Containers, could)
}

func (in *Input) allRestarting(s *corev1.PodStatus) corev1.PodCondition {
	switch {
	case s.Phase == corev1.PodSucceeded:
		return condition(false, "PodCompleted", "")
	case s.Phase == corev1.PodFailed:
		return condition(false, "PodFailed", "")
	case !in.restartingAll() || in.allRemoved():
		return condition(false, "", "")
	}
	return condition(true, "RestartAllContainersStarted", "container exited with restart policy rule")
}

// restartingAll reports whether all containers are being restarted because one has exited with a code of a RestartAllContainers rule.
func (in *Input) restartingAll() bool {
	if !couldRestartAll(in.Pod) {
		return false
	}
	if c := find(in.Old.Conditions, corev1.AllContainersRestarting); c != nil && c.Status == corev1.ConditionTrue {
		return true
	}
	triggers := func(list []corev1.Container, old []corev1.ContainerStatus) bool {
		for i := range list {
			c := &list[i]
			if r := in.Runtime.Find(c.Name); r != nil && r.State == cri.Exited && restartsAll(c, r.ExitCode) {
				return true
			} else if s := statusOf(old, c.Name); r != nil && r.State != cri.Exited || s == nil || s.State.Terminated == nil {
				continue
			} else if restartsAll(c, s.State.Terminated.ExitCode) {
				return true
			}
		}
		return false
	}
	return triggers(in.Pod.Spec.InitContainers, in.Old.InitContainerStatuses) || triggers(in.Pod.Spec.Containers, in.Old.ContainerStatuses)
}

func restartsAll(c *corev1.Container, exitCode int32) bool {
	r := MatchingRule(c, exitCode)
	return r != nil && r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
}

// allRemoved reports whether the runtime has none of the pod's containers.
func (in *Input) allRemoved() bool {
	has := func(c corev1.Container) bool { return in.Runtime.Find(c.Name) != nil }
	return !slices.ContainsFunc(in.Pod.Spec.InitContainers, has) && !slices.ContainsFunc(in.Pod.Spec.Containers, has)
}

// RestartingAll reports whether a status has a true AllContainersRestarting condition.
func RestartingAll(s *corev1.PodStatus) bool {
	c := find(s.Conditions, corev1.AllContainersRestarting)
	return c != nil && c.Status == corev1.ConditionTrue
}
