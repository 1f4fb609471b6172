package probe

import (
	corev1 "k8s.io/api/core/v1"
)

// Kind is what a probe is for.
type Kind string

// The kinds, as events spell them.
const (
	Startup   Kind = "Startup"
	Liveness  Kind = "Liveness"
	Readiness Kind = "Readiness"
)

// of returns a container's probe of this kind, or nil.
func (k Kind) of(c *corev1.Container) *corev1.Probe {
	switch k {
	case Startup:
		return c.StartupProbe
	case Liveness:
		return c.LivenessProbe
	case Readiness:
		return c.ReadinessProbe
	}
	return nil
}

// outcome is the outcome of running a probe once, as Events spell it.
type outcome string

const (
	success outcome = "success"
	warning outcome = "warning" // a success that is reported as an Event
	failure outcome = "failure"
	unknown outcome = "unknown"
)

// maxOutput is how many bytes of a response are read.
const maxOutput = 10 << 10

// result is the result of running a probe once.
type result struct {
	outcome outcome
	output  string
	// err is why the probe could not be run, which says nothing about the container.
	err error
}
