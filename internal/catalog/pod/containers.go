package pod

import (
	"iter"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/catalog/check"
)

// place is where in a spec a container stands.
type place struct {
	list  string
	index int
}

// in is the part of the spec that the container is.
func (at place) in(spec *check.Part) *check.Part { return spec.Item(at.list, at.index) }

// containers of all kinds, in the order in which they may start. An ephemeral container is shown as the container it is in all
// but its target.
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
