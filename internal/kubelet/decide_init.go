package kubelet

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/probe"
	"skiff/internal/kubelet/status"
)

// initialize decides about init containers: they run one after another, each when the one before it has succeeded or, for a sidecar, has
// started. It says whether all have, and whether one has failed for good.
//
// It goes from the last to the first: of those that are done runs may have been removed, so the last one that was ever started tells how far the pod is.
func (o *observed) initialize(p *plan) (done, failed bool) {
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
			if reached && status.Sidecar(c) {
				starts = append(starts, i)
			}
			continue
		}
		if reached && !status.Sidecar(c) {
			continue
		}
		switch v := o.initial(p, c, last); v {
		case again:
			starts = append(starts, i)
		case complete, completeAgain:
			if i == len(list)-1 {
				done = true
			} else if !reached {
				starts = append(starts, i+1)
			}
			if v == completeAgain {
				starts = append(starts, i)
			}
		case broken:
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
		o.start(p, starting{Kind: kindOf(c), Container: c})
		if len(p.Wait) > before && !status.Sidecar(c) {
			break // nothing goes past it
		}
	}
	return done, false
}

// verdict is what an init container's run means for the pod.
type verdict int

const (
	underWay      verdict = iota // it is doing its work
	complete                     // the next one can start
	completeAgain                // the next one can start, and so is this one, anew
	again                        // it is to be started again
	broken                       // it has failed, and with it the pod
)

func (o *observed) initial(p *plan, c *corev1.Container, last *cri.Container) verdict {
	switch {
	case last.State == cri.Created: // it was not started when it should have been
		return again
	case last.State == cri.Running && status.Sidecar(c):
		return o.sidecar(p, c, last)
	case last.State == cri.Running:
		return underWay
	case last.State == cri.Exited && status.Sidecar(c):
		return again
	case last.State == cri.Exited && last.ExitCode == 0 && last.Reason != "OOMKilled":
		return complete
	case last.State == cri.Exited:
		if !status.Restarts(o.pod, c, last.ExitCode) {
			return broken
		}
		return again
	}
	restart := o.pod.Spec.RestartPolicy != corev1.RestartPolicyNever
	if c.RestartPolicy != nil {
		restart = *c.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	if !restart {
		return broken
	}
	p.Stop = append(p.Stop, stopping{ID: last.ID, Name: c.Name, Message: fmt.Sprintf("Init container is in %q state, try killing it before restart", last.State)})
	return again
}

// sidecar decides about a sidecar that runs.
func (o *observed) sidecar(p *plan, c *corev1.Container, last *cri.Container) verdict {
	stop := func(message string, grace *int64) {
		p.Stop = append(p.Stop, stopping{ID: last.ID, Name: c.Name, Grace: grace, Message: fmt.Sprintf("Init container %s %s", c.Name, message)})
	}
	failure := o.failure(last)
	if c.StartupProbe != nil && !o.started(c.Name) {
		if failure == nil || failure.Kind != probe.Startup {
			return underWay
		}
		stop("failed startup probe", failure.GracePeriodSeconds)
		return again
	}
	switch {
	case last.Hash != cri.Hash(c):
		stop("definition changed", nil)
		return completeAgain
	case failure != nil:
		stop("failed liveness probe", failure.GracePeriodSeconds)
		return completeAgain
	case o.resize(p, c, last):
		p.Stop = append(p.Stop, stopping{ID: last.ID, Name: c.Name, Message: fmt.Sprintf("Container %s resize requires restart", c.Name)})
		return completeAgain
	}
	return complete
}

// started says whether a sidecar is known to have started.
func (o *observed) started(name string) bool {
	return slices.ContainsFunc(o.status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == name && s.Started != nil && *s.Started
	})
}

// pruneInit removes all but the last run of each init container.
func (o *observed) pruneInit(p *plan) {
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
