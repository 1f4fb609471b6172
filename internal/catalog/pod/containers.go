package pod

import (
	"iter"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/catalog/check"
)

// place is the position of a container in a spec.
type place struct {
	list  string
	index int
}

// in returns the container's part of the spec.
func (at place) in(spec *check.Part) *check.Part { return spec.Item(at.list, at.index) }

// containers iterates over containers of all kinds, in the order in which they may start. An ephemeral container is converted to a container without
// its target.
func containers(spec *corev1.PodSpec) iter.Seq2[place, *corev1.Container] {
	return func(yield func(place, *corev1.Container) bool) {
		for i := range spec.InitContainers {
			if !yield(place{"initContainers", i}, &spec.InitContainers[i]) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(place{"containers", i}, &spec.Containers[i]) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			if !yield(place{"ephemeralContainers", i}, plain(&spec.EphemeralContainers[i])) {
				return
			}
		}
	}
}

func plain(c *corev1.EphemeralContainer) *corev1.Container {
	return (*corev1.Container)(&c.EphemeralContainerCommon)
}

// isSidecar reports whether an init container keeps running beside the others.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func is(b *bool) bool { return b != nil && *b }
