package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Sidecar says whether an init container is one that keeps running beside the pod's containers.
func Sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// Restarts says whether a container that has ended with an exit code is to be started again: by its own rules and policy, else the pod's.
func Restarts(pod *corev1.Pod, c *corev1.Container, exitCode int32) bool {
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

// MatchingRule is the first of a container's restart rules that is about an exit code.
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

// tally counts containers by how they are.
type tally struct {
	initPending, initFailed           int // init containers that have not ended yet; that ended for good with an error
	sidecarsPending                   int
	unknown, running, waiting         int // sidecars and containers
	stopped, stoppedForGood, succeeds int // containers
}

// phase is where the pod is in its life.
func (in *Input) phase(s *corev1.PodStatus) corev1.PodPhase {
	var t tally
	for i := range in.Pod.Spec.InitContainers {
		c := &in.Pod.Spec.InitContainers[i]
		if Sidecar(c) {
			t.sidecar(of(s.InitContainerStatuses, c.Name))
		} else {
			t.initial(in.Pod, c, of(s.InitContainerStatuses, c.Name))
		}
	}
	for i := range in.Pod.Spec.Containers {
		c := &in.Pod.Spec.Containers[i]
		t.container(in.Pod, c, of(s.ContainerStatuses, c.Name))
	}
	switch {
	case t.initFailed > 0:
		return corev1.PodFailed
	case t.initPending > 0, t.sidecarsPending > 0 && !in.anyActiveStarted(), t.waiting > 0:
		return corev1.PodPending
	case t.running > 0 && t.unknown == 0:
		return corev1.PodRunning
	case t.running == 0 && t.stopped > 0 && t.unknown == 0:
		switch {
		case !in.Terminated && t.stopped != t.stoppedForGood:
			return corev1.PodRunning // some are about to be started again
		case t.stopped == t.succeeds:
			return corev1.PodSucceeded
		}
		return corev1.PodFailed
	}
	return corev1.PodPending
}

func (t *tally) initial(pod *corev1.Pod, c *corev1.Container, s *corev1.ContainerStatus) {
	ended := func(e *corev1.ContainerStateTerminated) {
		if e.ExitCode != 0 && !Restarts(pod, c, e.ExitCode) && e.Reason != restartingAll {
			t.initFailed++
		}
	}
	switch {
	case s == nil, s.State.Running != nil:
		t.initPending++
	case s.State.Terminated != nil:
		ended(s.State.Terminated)
	case s.State.Waiting != nil && s.LastTerminationState.Terminated != nil:
		ended(s.LastTerminationState.Terminated)
	default:
		t.initPending++
	}
}

func (t *tally) sidecar(s *corev1.ContainerStatus) {
	switch {
	case s == nil:
		t.unknown++
	case s.State.Running != nil:
		if s.Started == nil || !*s.Started {
			t.sidecarsPending++
		}
		t.running++
	case s.State.Terminated != nil: // whether sidecars have ended does not matter
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

func (t *tally) container(pod *corev1.Pod, c *corev1.Container, s *corev1.ContainerStatus) {
	ended := func(e *corev1.ContainerStateTerminated) {
		t.stopped++
		if !Restarts(pod, c, e.ExitCode) && e.Reason != restartingAll {
			t.stoppedForGood++
		}
	}
	switch {
	case s == nil:
		t.unknown++
	case s.State.Running != nil:
		t.running++
	case s.State.Terminated != nil:
		ended(s.State.Terminated)
		if s.State.Terminated.ExitCode == 0 {
			t.succeeds++
		}
	case s.State.Waiting != nil && s.LastTerminationState.Terminated != nil:
		ended(s.LastTerminationState.Terminated)
	case s.State.Waiting != nil:
		t.waiting++
	default:
		t.unknown++
	}
}

// anyActiveStarted says whether one of the pod's containers is in its newest sandbox: then it has been initialized.
func (in *Input) anyActiveStarted() bool {
	for i := range in.Pod.Spec.Containers {
		if in.Runtime.FindActive(in.Pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

func of(list []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}
