package status

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/kubelet/cri"
)

// Reasons of containers' states.
const (
	containerCreating = "ContainerCreating"
	podInitializing   = "PodInitializing"
	statusUnknown     = "ContainerStatusUnknown"
	restartingAll     = "RestartingAllContainers"
)

// lostExitCode is the exit code of a container whose exit was not observed.
const lostExitCode = 137

func (in *Input) initContainers() []corev1.ContainerStatus {
	out := in.statuses(in.Pod.Spec.InitContainers, in.Old.InitContainerStatuses, true)
	return out // in the order of the spec
}

func (in *Input) containers() []corev1.ContainerStatus {
	return byName(in.statuses(in.Pod.Spec.Containers, in.Old.ContainerStatuses, false))
}

func (in *Input) ephemeralContainers() []corev1.ContainerStatus {
	var list []corev1.Container
	for i := range in.Pod.Spec.EphemeralContainers {
		list = append(list, corev1.Container(in.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return byName(in.statuses(list, in.Old.EphemeralContainerStatuses, false))
}

func byName(list []corev1.ContainerStatus) []corev1.ContainerStatus {
	slices.SortFunc(list, func(a, b corev1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (in *Input) statuses(list []corev1.Container, old []corev1.ContainerStatus, initial bool) []corev1.ContainerStatus {
	if len(list) == 0 {
		return nil
	}
	restarting := in.restartingAll()
	out := make([]corev1.ContainerStatus, len(list))
	for i := range list {
		c := &list[i]
		before := statusOf(old, c.Name)
		runs := in.runs(c.Name)
		if len(runs) == 0 {
			out[i] = in.missing(c, before, restarting)
		} else {
			out[i] = in.found(c, before, runs, restarting)
		}
		in.startFailure(c, &out[i], runs, initial)
	}
	return out
}

// runs returns the latest run of a container and the one before it.
func (in *Input) runs(name string) (out []*cri.Container) {
	for _, c := range in.Runtime.Containers {
		if c.Name == name && len(out) < 2 {
			out = append(out, c)
		}
	}
	return out
}

// missing returns the status of a container that the runtime does not have: it was not created yet, or the runtime lost it.
func (in *Input) missing(c *corev1.Container, before *corev1.ContainerStatus, restarting bool) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, VolumeMounts: in.mounts(c)}
	s.State.Waiting = &corev1.ContainerStateWaiting{Reason: containerCreating}
	if len(in.Pod.Spec.InitContainers) > 0 {
		s.State.Waiting.Reason = podInitializing
	}
	if before == nil {
		return s
	}
	if restarting && before.State.Waiting == nil {
		const why = "The container is removed because RestartAllContainers in place"
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: restartingAll, Message: why}
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: restartingAll, Message: why, ExitCode: lostExitCode}
		s.RestartCount = before.RestartCount + 1
		return s
	}
	if before.State.Terminated != nil {
		return *before.DeepCopy()
	}
	s.RestartCount, s.LastTerminationState = before.RestartCount, *before.LastTerminationState.DeepCopy()
	if before.State.Running != nil && s.LastTerminationState.Terminated == nil {
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: statusUnknown, ExitCode: lostExitCode,
			Message: "The container could not be located when the pod was deleted.  The container used to be Running"}
		if in.Pod.DeletionTimestamp == nil {
			s.RestartCount++
		}
	}
	return s
}

// found returns the status of a container that the runtime has.
func (in *Input) found(c *corev1.Container, before *corev1.ContainerStatus, runs []*cri.Container, restarting bool) corev1.ContainerStatus {
	s := in.run(c, before, runs[0], restarting)
	if len(runs) > 1 {
		s.LastTerminationState = in.run(c, before, runs[1], restarting).State
	}
	return s
}

// run returns the status that one run of a container has.
func (in *Input) run(c *corev1.Container, before *corev1.ContainerStatus, r *cri.Container, restarting bool) corev1.ContainerStatus {
	id := in.RuntimeName + "://" + r.ID
	s := corev1.ContainerStatus{Name: r.Name, RestartCount: r.RestartCount, Image: r.Image, ImageID: r.ImageRef, ContainerID: id, VolumeMounts: in.mounts(c)}
	if before != nil {
		s.RestartCount = max(s.RestartCount, before.RestartCount)
		switch {
		case before.ContainerID != id && before.State.Terminated != nil: // earlier runs may have been removed
			s.LastTerminationState.Terminated = before.State.Terminated.DeepCopy()
		case before.LastTerminationState.Terminated != nil:
			s.LastTerminationState.Terminated = before.LastTerminationState.Terminated.DeepCopy()
		}
	}
	switch {
	case r.State == cri.Running:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(r.StartedAt)}
		if before != nil && before.State.Terminated != nil && before.RestartCount >= r.RestartCount && before.ContainerID != id {
			s.RestartCount = before.RestartCount + 1
		}
	case r.State == cri.Exited:
		s.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: r.ExitCode, Reason: r.Reason, Message: r.Message,
			StartedAt: metav1.NewTime(r.StartedAt), FinishedAt: metav1.NewTime(r.FinishedAt), ContainerID: id}
	case r.State == cri.Unknown && before != nil && before.State.Running != nil:
		s.State.Terminated = &corev1.ContainerStateTerminated{Reason: statusUnknown, ExitCode: lostExitCode,
			Message: "The container could not be located when the pod was terminated"}
		if restarting {
			s.State.Terminated.Reason = restartingAll
		}
		s.RestartCount = before.RestartCount + 1
	default: // created, and about to run
		s.State.Waiting = &corev1.ContainerStateWaiting{}
	}
	s.Resources = in.resources(c, r)
	s.AllocatedResources = c.Resources.Requests.DeepCopy()
	if u := r.User.GetLinux(); u != nil {
		s.User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: u.Uid, GID: u.Gid, SupplementalGroups: slices.Clone(u.SupplementalGroups)}}
	}
	return s
}

// startFailure sets the waiting state of a container that is to be started but could not be, with the reason.
func (in *Input) startFailure(c *corev1.Container, s *corev1.ContainerStatus, runs []*cri.Container, initial bool) {
	if initial {
		if len(runs) > 0 && runs[0].State == cri.Exited && runs[0].ExitCode == 0 && !IsSidecar(c) {
			return
		}
		if len(runs) == 0 && !IsSidecar(c) && s.State.Waiting != nil && in.anyCreated() {
			s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed",
				Message: "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"}}
			return
		}
	}
	failure, failed := in.Failures[c.Name]
	if !failed || !ShouldStart(in.Pod, c, in.Runtime) {
		return
	}
	if s.State.Terminated != nil {
		s.LastTerminationState = s.State
	}
	s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: failure.Reason, Message: failure.Message}}
}

// ShouldStart reports whether a container is to be started: it never was, or it has exited and its restart policy says so.
func ShouldStart(pod *corev1.Pod, c *corev1.Container, runtime *cri.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	last := runtime.Find(c.Name)
	switch {
	case last == nil:
		return true
	case last.State == cri.Running:
		return false
	case last.State == cri.Exited:
		return ShouldRestart(pod, c, last.ExitCode)
	}
	return true
}

// anyCreated reports whether one of the pod's containers was ever created, which means that its init containers have completed.
func (in *Input) anyCreated() bool {
	for i := range in.Pod.Spec.Containers {
		if c := in.Runtime.Find(in.Pod.Spec.Containers[i].Name); c != nil && c.State != cri.Unknown {
			return true
		}
	}
	return false
}

// mounts returns the status of a container's volume mounts.
func (in *Input) mounts(c *corev1.Container) (out []corev1.VolumeMountStatus) {
	for _, m := range c.VolumeMounts {
		s := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != corev1.RecursiveReadOnlyDisabled && in.RecursiveReadOnly {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		out = append(out, s)
	}
	return out
}
