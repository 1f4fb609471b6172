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

// outcome is how asking once went, as events spell it.
type outcome string

const (
	success outcome = "success"
	warning outcome = "warning" // a success that somebody should look at
	failure outcome = "failure"
	unknown outcome = "unknown"
)

// maxOutput bounds what of an answer is read.
const maxOutput = 10 << 10

// answer is what a container said.
type answer struct {
	outcome outcome
	output  string
	// err says that the question could not be asked. It proves nothing about the container.
	err error
}
