package hollow

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A container that fails repeatedly is restarted after firstBackOff, then after twice as long each time, up to lastBackOff. The first restart is
// immediate.
const (
	firstBackOff = 10 * time.Second
	lastBackOff  = 5 * time.Minute
)

// report builds a pod's status.
type report struct {
	pod       *corev1.Pod
	behaviour behaviour
	network   podNetwork
	now       time.Time
	next      time.Time // when a container changes next; zero is never
}

func (r *report) time() metav1.Time { return metav1.NewTime(r.now) }

// due notes when a container changes.
func (r *report) due(at time.Time) {
	if r.next.IsZero() || at.Before(r.next) {
		r.next = at
	}
}

// pending returns the status of a pod whose containers are being created.
func (r *report) pending() *corev1.PodStatus {
	reason := "ContainerCreating"
	if len(r.pod.Spec.InitContainers) > 0 {
		reason = "PodInitializing"
	}
	waiting := func(c *corev1.Container) corev1.ContainerStatus {
		s := r.status(c)
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
		return s
	}
	return r.finish(corev1.PodPending, r.each(r.pod.Spec.InitContainers, waiting), r.each(r.pod.Spec.Containers, waiting))
}

// started returns the status of a pod whose containers have just been started.
func (r *report) started() *corev1.PodStatus {
	initial := r.each(r.pod.Spec.InitContainers, func(c *corev1.Container) corev1.ContainerStatus {
		if policy(r.pod, c) == corev1.RestartPolicyAlways && c.RestartPolicy != nil {
			return r.run(c, r.status(c)) // a sidecar
		}
		s := r.status(c)
		s.Ready, s.ContainerID = true, r.id(c, 0)
		s.State.Terminated = r.end(c, 0, r.time(), 0)
		return s
	})
	return r.finish(corev1.PodRunning, initial, r.each(r.pod.Spec.Containers, func(c *corev1.Container) corev1.ContainerStatus {
		return r.run(c, r.status(c))
	}))
}

// running returns the status of a running pod, updated with what has happened to its containers since.
func (r *report) running(since time.Time) *corev1.PodStatus {
	alive, failed := false, false
	containers := r.each(r.pod.Spec.Containers, func(c *corev1.Container) corev1.ContainerStatus {
		s := r.advance(c, r.reported(r.pod.Status.ContainerStatuses, c), since)
		alive = alive || s.State.Terminated == nil
		failed = failed || s.State.Terminated != nil && s.State.Terminated.ExitCode != 0
		return s
	})
	initial := r.each(r.pod.Spec.InitContainers, func(c *corev1.Container) corev1.ContainerStatus {
		s := r.reported(r.pod.Status.InitContainerStatuses, c)
		if !alive && s.State.Running != nil { // sidecars stop when the others have ended
			s = r.terminate(c, s, 0)
		}
		return s
	})
	phase := corev1.PodRunning
	switch {
	case !alive && failed:
		phase = corev1.PodFailed
	case !alive:
		phase = corev1.PodSucceeded
	}
	return r.finish(phase, initial, containers)
}

// advance updates a container's status.
func (r *report) advance(c *corev1.Container, s corev1.ContainerStatus, since time.Time) corev1.ContainerStatus {
	if running := s.State.Running; running != nil {
		ends, code := r.behaviour.outcome(r.pod, c, s.RestartCount)
		end := precise(running.StartedAt.Time, since).Add(r.behaviour.runsFor)
		switch {
		case s.Image != c.Image: // the image was changed: the container is replaced
			return r.restart(c, r.terminate(c, s, 0))
		case !ends:
			return s
		case r.now.Before(end):
			r.due(end)
			return s
		}
		s = r.terminate(c, s, code)
	}
	last := s.State.Terminated
	if last == nil {
		last = s.LastTerminationState.Terminated
	}
	switch {
	case last == nil: // a container without a status
		return r.run(c, r.status(c))
	case !restarts(policy(r.pod, c), last.ExitCode):
		return s
	}
	wait := backOff(s.RestartCount)
	if due := last.FinishedAt.Add(wait); r.now.Before(due) {
		r.due(due)
		if s.State.Terminated != nil {
			s.LastTerminationState, s.State = s.State, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
				Message: fmt.Sprintf("back-off %v restarting failed container=%s pod=%s_%s(%s)", wait, c.Name, r.pod.Name, r.pod.Namespace, r.pod.UID)}}
		}
		return s
	}
	return r.restart(c, s)
}

func restarts(p corev1.RestartPolicy, exitCode int32) bool {
	return p == corev1.RestartPolicyAlways || p == corev1.RestartPolicyOnFailure && exitCode != 0
}

func backOff(restarts int32) time.Duration {
	if restarts == 0 {
		return 0
	}
	return min(firstBackOff<<min(restarts-1, 16), lastBackOff)
}

// stopped returns the status of a pod that was stopped.
func (r *report) stopped() *corev1.PodStatus {
	failed := false
	stop := func(statuses []corev1.ContainerStatus) func(c *corev1.Container) corev1.ContainerStatus {
		return func(c *corev1.Container) corev1.ContainerStatus {
			s := r.reported(statuses, c)
			switch {
			case s.State.Running != nil && policy(r.pod, c) == corev1.RestartPolicyAlways: // servers exit with 0 when stopped
				s = r.terminate(c, s, 0)
			case s.State.Running != nil: // others did not complete
				s = r.terminate(c, s, 143)
			case s.State.Terminated == nil && s.LastTerminationState.Terminated == nil:
				s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown",
					Message: "The container could not be located when the pod was terminated"}}
			case s.State.Terminated == nil:
				s.State, s.LastTerminationState = s.LastTerminationState, corev1.ContainerState{}
			}
			failed = failed || s.State.Terminated.ExitCode != 0
			return s
		}
	}
	initial := r.each(r.pod.Spec.InitContainers, stop(r.pod.Status.InitContainerStatuses))
	containers := r.each(r.pod.Spec.Containers, stop(r.pod.Status.ContainerStatuses))
	phase := corev1.PodSucceeded
	if failed {
		phase = corev1.PodFailed
	}
	if terminal(r.pod) { // a terminal phase does not change
		phase = r.pod.Status.Phase
	}
	return r.finish(phase, initial, containers)
}

// deadlineExceeded returns the status of a pod whose activeDeadlineSeconds have passed.
func (r *report) deadlineExceeded() *corev1.PodStatus {
	s := r.stopped()
	s = r.finish(corev1.PodFailed, s.InitContainerStatuses, s.ContainerStatuses)
	s.Reason, s.Message = "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
	return s
}

func (r *report) each(containers []corev1.Container, status func(*corev1.Container) corev1.ContainerStatus) []corev1.ContainerStatus {
	if len(containers) == 0 {
		return nil
	}
	out := make([]corev1.ContainerStatus, len(containers))
	for i := range containers {
		out[i] = status(&containers[i])
	}
	return out
}

// status returns the status of a container that was not started.
func (r *report) status(c *corev1.Container) corev1.ContainerStatus {
	no := false
	return corev1.ContainerStatus{Name: c.Name, Image: c.Image, Started: &no}
}

// reported returns a container's status as last reported.
func (r *report) reported(statuses []corev1.ContainerStatus, c *corev1.Container) corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == c.Name {
			return statuses[i]
		}
	}
	return r.status(c)
}

// run starts a container.
func (r *report) run(c *corev1.Container, s corev1.ContainerStatus) corev1.ContainerStatus {
	yes := true
	s.Ready, s.Started = true, &yes
	s.Image, s.ImageID, s.ContainerID = c.Image, imageID(c.Image), r.id(c, s.RestartCount)
	s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: r.time()}}
	if ends, _ := r.behaviour.outcome(r.pod, c, s.RestartCount); ends {
		r.due(r.now.Add(r.behaviour.runsFor))
	}
	return s
}

// restart starts a container that has ended again.
func (r *report) restart(c *corev1.Container, s corev1.ContainerStatus) corev1.ContainerStatus {
	if s.State.Terminated != nil {
		s.LastTerminationState = s.State
	}
	s.RestartCount++
	return r.run(c, s)
}

// terminate ends a running container.
func (r *report) terminate(c *corev1.Container, s corev1.ContainerStatus, exitCode int32) corev1.ContainerStatus {
	no := false
	s.Ready, s.Started = false, &no
	s.State = corev1.ContainerState{Terminated: r.end(c, s.RestartCount, s.State.Running.StartedAt, exitCode)}
	return s
}

func (r *report) end(c *corev1.Container, run int32, started metav1.Time, exitCode int32) *corev1.ContainerStateTerminated {
	reason := "Completed"
	if exitCode != 0 {
		reason = "Error"
	}
	return &corev1.ContainerStateTerminated{ExitCode: exitCode, Reason: reason, StartedAt: started, FinishedAt: r.time(), ContainerID: r.id(c, run)}
}

func (r *report) id(c *corev1.Container, run int32) string {
	return "containerd://" + digest(fmt.Sprintf("%s/%s/%d", r.pod.UID, c.Name, run))
}

func imageID(image string) string { return image + "@sha256:" + digest(image) }

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
