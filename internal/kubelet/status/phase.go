package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// IsSidecar reports whether an init container is a sidecar: it has restartPolicy Always.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// ShouldRestart reports whether a container that has exited is restarted: by the container's restart rules and policy, else the pod's.
func ShouldRestart(pod *corev1.Pod, c *corev1.Container, exitCode int32) bool {
	policy := pod.Spec.RestartPolicy
	if c.RestartPolicy != nil {
		if rule := MatchingRule(c, exitCode); rule != nil &&
			(rule.Action == corev1.ContainerRestartRuleActionRestart || rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers) {
			return true
		}
		policy = corev1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return exitCode != 0
	}
	return true
}

// MatchingRule returns the first of a container's restart rules that matches an exit code.
func MatchingRule(c *corev1.Container, exitCode int32) *corev1.ContainerRestartRule {
	for i := range c.RestartPolicyRules {
		r := &c.RestartPolicyRules[i]
		if r.ExitCodes == nil {
			continue
		}
		in := slices.Contains(r.ExitCodes.Values, exitCode)
		switch r.ExitCodes.Operator {
		case corev1.ContainerRestartRuleOnExitCodesOpIn:
			if in {
				return r
			}
		case corev1.ContainerRestartRuleOnExitCodesOpNotIn:
			if !in {
				return r
			}
		}
	}
	return nil
}

// counts are the numbers of containers by state.
type counts struct {
	initPending     int // init containers that have not completed
	initFailed      int // init containers that have failed and are not restarted
	sidecarsPending int // sidecars that have not started
	unknown         int // sidecars and containers without a known state
	running         int // sidecars and containers
	waiting         int // sidecars and containers that were never started
	exited          int // containers
	exitedNoRestart int // containers that have exited and are not restarted
	succeeded       int // containers that have exited with 0
}

// phase computes the pod's phase.
func (in *Input) phase(s *corev1.PodStatus) corev1.PodPhase {
	var t counts
	for i := range in.Pod.Spec.InitContainers {
		c := &in.Pod.Spec.InitContainers[i]
		if IsSidecar(c) {
			t.sidecar(statusOf(s.InitContainerStatuses, c.Name))
		} else {
			t.initial(in.Pod, c, statusOf(s.InitContainerStatuses, c.Name))
		}
	}
	for i := range in.Pod.Spec.Containers {
		c := &in.Pod.Spec.Containers[i]
		t.container(in.Pod, c, statusOf(s.ContainerStatuses, c.Name))
	}
	switch {
	case t.initFailed > 0:
		return corev1.PodFailed
	case t.initPending > 0, t.sidecarsPending > 0 && !in.anyActiveStarted(), t.waiting > 0:
		return corev1.PodPending
	case t.running > 0 && t.unknown == 0:
		return corev1.PodRunning
	case t.running == 0 && t.exited > 0 && t.unknown == 0:
		switch {
		case !in.Terminated && t.exited != t.exitedNoRestart:
			return corev1.PodRunning // some are about to be restarted
		case t.exited == t.succeeded:
			return corev1.PodSucceeded
		}
		return corev1.PodFailed
	}
	return corev1.PodPending
}

func (t *counts) initial(pod *corev1.Pod, c *corev1.Container, s *corev1.ContainerStatus) {
	countExit := func(e *corev1.ContainerStateTerminated) {
		if e.ExitCode != 0 && !ShouldRestart(pod, c, e.ExitCode) && e.Reason != restartingAll {
			t.initFailed++
		}
	}
	switch {
	case s == nil, s.State.Running != nil:
		t.initPending++
	case s.State.Terminated != nil:
		countExit(s.State.Terminated)
	case s.State.Waiting != nil && s.LastTerminationState.Terminated != nil:
		countExit(s.LastTerminationState.Terminated)
	default:
		t.initPending++
	}
}

func (t *counts) sidecar(s *corev1.ContainerStatus) {
	switch {
	case s == nil:
		t.unknown++
	case s.State.Running != nil:
		if s.Started == nil || !*s.Started {
			t.sidecarsPending++
		}
		t.running++
	case s.State.Terminated != nil: // exited sidecars do not matter
	case s.State.Waiting != nil:
		if s.LastTerminationState.Terminated == nil {
			t.sidecarsPending++
			t.waiting++
		}
	default:
		t.sidecarsPending++
		t.unknown++
	}
}

func (t *counts) container(pod *corev1.Pod, c *corev1.Container, s *corev1.ContainerStatus) {
	countExit := func(e *corev1.ContainerStateTerminated) {
		t.exited++
		if !ShouldRestart(pod, c, e.ExitCode) && e.Reason != restartingAll {
			t.exitedNoRestart++
		}
	}
	switch {
	case s == nil:
		t.unknown++
	case s.State.Running != nil:
		t.running++
	case s.State.Terminated != nil:
		countExit(s.State.Terminated)
		if s.State.Terminated.ExitCode == 0 {
			t.succeeded++
		}
	case s.State.Waiting != nil && s.LastTerminationState.Terminated != nil:
		countExit(s.LastTerminationState.Terminated)
	case s.State.Waiting != nil:
		t.waiting++
	default:
		t.unknown++
	}
}

// anyActiveStarted reports whether one of the pod's containers is in its latest sandbox, which means that init containers have completed.
func (in *Input) anyActiveStarted() bool {
	for i := range in.Pod.Spec.Containers {
		if in.Runtime.FindActive(in.Pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

// statusOf returns the status of a container, nil if there is none.
func statusOf(list []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}
