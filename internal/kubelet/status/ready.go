package status

import (
	corev1 "k8s.io/api/core/v1"
)

// setReady sets for each container whether it has started and is ready.
func (in *Input) setReady(s *corev1.PodStatus) {
	if in.Ready != nil {
		in.Ready(s)
		return
	}
	for i := range s.ContainerStatuses {
		c := &s.ContainerStatuses[i]
		running := c.State.Running != nil
		c.Started, c.Ready = &running, running
	}
	for i := range s.InitContainerStatuses {
		c := &s.InitContainerStatuses[i]
		running := c.State.Running != nil
		c.Started, c.Ready = &running, c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
		if spec := container(in.Pod.Spec.InitContainers, c.Name); spec != nil && IsSidecar(spec) {
			c.Ready = running
		}
	}
}

// container returns the container of a name, nil if there is none.
func container(list []corev1.Container, name string) *corev1.Container {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}
