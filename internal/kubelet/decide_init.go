package kubelet

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/probe"
	"skiff/internal/kubelet/status"
)

// planInitContainers plans what to do about init containers: they run one after another, each when the one before it has succeeded or, for a sidecar, has
// started. It reports whether all have, and whether one has failed for good.
//
// It goes from the last to the first: runs of completed init containers may have been removed, so the last one that was ever started tells how far the pod is.
func (o *observed) planInitContainers(p *plan) (done, failed bool) {
	list := o.pod.Spec.InitContainers
	if len(list) == 0 {
		return true, false
	}
	done = o.anyActive()
	reached := done // whether this init container or one after it has been started
	var starts []int
	for i := len(list) - 1; i >= 0; i-- {
		c := &list[i]
		last := o.runtime.FindActive(c.Name)
		if last == nil {
			if reached && status.IsSidecar(c) {
				starts = append(starts, i)
			}
			continue
		}
		if reached && !status.IsSidecar(c) {
			continue
		}
		switch v := o.initVerdict(p, c, last); v {
		case initRestart:
			starts = append(starts, i)
		case initComplete, initCompleteRestart:
			if i == len(list)-1 {
				done = true
			} else if !reached {
				starts = append(starts, i+1)
			}
			if v == initCompleteRestart {
				starts = append(starts, i)
			}
		case initFailed:
			return false, true
		}
		reached = true
	}
	if !reached {
		starts = append(starts, 0)
	}
	for i := len(starts) - 1; i >= 0; i-- {
		c := &list[starts[i]]
		before := len(p.Wait)
		o.planStart(p, starting{Kind: kindOf(c), Container: c})
		if len(p.Wait) > before && !status.IsSidecar(c) {
			break // the init containers after it wait for it
		}
	}
	return done, false
}

// verdict is what the last run of an init container means for the pod.
type verdict int

const (
	initRunning         verdict = iota // it runs
	initComplete                       // it is complete, or a started sidecar: the next one can start
	initCompleteRestart                // the next one can start, and this one is restarted
	initRestart                        // it is restarted
	initFailed                         // it has failed, and with it the pod
)

// initVerdict judges the last run of an init container.
func (o *observed) initVerdict(p *plan, c *corev1.Container, last *cri.Container) verdict {
	switch {
	case last.State == cri.Created: // its start failed or was interrupted
		return initRestart
	case last.State == cri.Running && status.IsSidecar(c):
		return o.sidecarVerdict(p, c, last)
	case last.State == cri.Running:
		return initRunning
	case last.State == cri.Exited && status.IsSidecar(c):
		return initRestart
	case last.State == cri.Exited && last.ExitCode == 0 && last.Reason != "OOMKilled":
		return initComplete
	case last.State == cri.Exited:
		if !status.ShouldRestart(o.pod, c, last.ExitCode) {
			return initFailed
		}
		return initRestart
	}
	restart := o.pod.Spec.RestartPolicy != corev1.RestartPolicyNever
	if c.RestartPolicy != nil {
		restart = *c.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	if !restart {
		return initFailed
	}
	p.Stop = append(p.Stop, stopping{ID: last.ID, Name: c.Name, Message: fmt.Sprintf("Init container is in %q state, try killing it before restart", last.State)})
	return initRestart
}

// sidecarVerdict judges a running sidecar.
func (o *observed) sidecarVerdict(p *plan, c *corev1.Container, last *cri.Container) verdict {
	stop := func(message string, grace *int64) {
		p.Stop = append(p.Stop, stopping{ID: last.ID, Name: c.Name, Grace: grace, Message: fmt.Sprintf("Init container %s %s", c.Name, message)})
	}
	failure := o.probeFailure(last)
	if c.StartupProbe != nil && !o.sidecarStarted(c.Name) {
		if failure == nil || failure.Kind != probe.Startup {
			return initRunning
		}
		stop("failed startup probe", failure.GracePeriodSeconds)
		return initRestart
	}
	switch {
	case last.Hash != cri.Hash(c):
		stop("definition changed", nil)
		return initCompleteRestart
	case failure != nil:
		stop("failed liveness probe", failure.GracePeriodSeconds)
		return initCompleteRestart
	case o.planResize(p, c, last):
		p.Stop = append(p.Stop, stopping{ID: last.ID, Name: c.Name, Message: fmt.Sprintf("Container %s resize requires restart", c.Name)})
		return initCompleteRestart
	}
	return initComplete
}

// sidecarStarted reports whether the pod's status says that a sidecar has started.
func (o *observed) sidecarStarted(name string) bool {
	return slices.ContainsFunc(o.status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == name && s.Started != nil && *s.Started
	})
}

// removeOldInitRuns plans to remove all but the last run of each init container.
func (o *observed) removeOldInitRuns(p *plan) {
	for i := range o.pod.Spec.InitContainers {
		count := 0
		for _, c := range o.runtime.Containers {
			if c.Name != o.pod.Spec.InitContainers[i].Name || c.State == cri.Running || c.State == cri.Created {
				continue
			}
			if count++; count > 1 {
				p.Remove = append(p.Remove, removal{ID: c.ID, Name: c.Name})
			}
		}
	}
}
