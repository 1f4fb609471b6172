package hollow

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Annotations that set how a pod's containers behave.
const (
	annotationReadyAfter = "hollow.skiff/ready-after"
	annotationRunsFor    = "hollow.skiff/runs-for"
	annotationExitCode   = "hollow.skiff/exit-code"
	annotationStopsAfter = "hollow.skiff/stops-after"
	annotationCPU        = "hollow.skiff/cpu"
	annotationMemory     = "hollow.skiff/memory"
)

// behaviour is how containers behave.
type behaviour struct {
	readyAfter  time.Duration
	runsFor     time.Duration
	stopsAfter  time.Duration
	failureRate float64 // the share of runs that fail
	completes   bool    // they end by themselves, whatever the restart policy
	exitCode    *int32
}

// of returns how the containers of a pod behave. Invalid annotations are ignored.
func (l behaviour) of(pod *corev1.Pod) behaviour {
	duration := func(name string, into *time.Duration) bool {
		d, err := time.ParseDuration(pod.Annotations[name])
		if err != nil || d < 0 {
			return false
		}
		*into = d
		return true
	}
	duration(annotationReadyAfter, &l.readyAfter)
	duration(annotationStopsAfter, &l.stopsAfter)
	l.completes = duration(annotationRunsFor, &l.runsFor)
	if code, err := strconv.ParseInt(pod.Annotations[annotationExitCode], 10, 32); err == nil {
		n := int32(code)
		l.exitCode = &n
	}
	return l
}

// outcome returns whether a run of a container ends by itself, and its exit code. It is always the same for the same run.
func (l behaviour) outcome(pod *corev1.Pod, c *corev1.Container, run int32) (ends bool, exitCode int32) {
	switch {
	case l.exitCode != nil:
		exitCode = *l.exitCode
	case l.failureRate > 0 && chance(string(pod.UID), c.Name, run) < l.failureRate:
		exitCode = 1
	}
	return l.completes || policy(pod, c) != corev1.RestartPolicyAlways || exitCode != 0, exitCode
}

// chance returns a number from 0 up to 1 that depends only on the run.
func chance(uid, container string, run int32) float64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s/%d", uid, container, run)
	return float64(h.Sum64()) / math.MaxUint64
}

func policy(pod *corev1.Pod, c *corev1.Container) corev1.RestartPolicy {
	if c.RestartPolicy != nil {
		return corev1.RestartPolicy(*c.RestartPolicy)
	}
	return pod.Spec.RestartPolicy
}

// podNetwork holds the addresses that a pod gets from its node.
type podNetwork struct {
	hostIP    string
	addresses func() []string // returns the pod's IPs, one per family
}

// step is what to do about a pod.
type step struct {
	status    *corev1.PodStatus // to be reported, if not nil
	remove    bool              // the pod has terminated and is deleted after the report
	requeueAt time.Time         // when there is more to do, if nothing changes until then; zero is never
}

// decide returns what to do about a pod now. since is when its status was reported, if that is known more precisely than the status says, which has
// whole seconds.
func decide(pod *corev1.Pod, l behaviour, at podNetwork, since, now time.Time) step {
	s := decideWithoutDeadline(pod, l.of(pod), at, since, now)
	if d := deadline(pod); !d.IsZero() && now.Before(d) && (s.requeueAt.IsZero() || d.Before(s.requeueAt)) && pod.DeletionTimestamp == nil && !terminal(pod) {
		s.requeueAt = d
	}
	return s
}

// decideWithoutDeadline is decide without requeueing for activeDeadlineSeconds.
func decideWithoutDeadline(pod *corev1.Pod, l behaviour, at podNetwork, since, now time.Time) step {
	r := &report{pod: pod, behaviour: l, network: at, now: now}
	switch {
	case pod.DeletionTimestamp != nil:
		return r.stop()
	case terminal(pod):
		return step{}
	case pod.Status.StartTime == nil:
		if l.readyAfter == 0 {
			return step{status: r.started(), requeueAt: r.next}
		}
		return step{status: r.pending(), requeueAt: now.Add(l.readyAfter)}
	case !deadline(pod).IsZero() && !now.Before(deadline(pod)):
		return step{status: r.deadlineExceeded()}
	case !hasStarted(pod):
		if due := precise(pod.Status.StartTime.Time, since).Add(l.readyAfter); now.Before(due) {
			return step{requeueAt: due}
		}
		return step{status: r.started(), requeueAt: r.next}
	}
	status := r.running(since)
	s := step{requeueAt: r.next}
	if !equality.Semantic.DeepEqual(*status, pod.Status) {
		s.status = status
	}
	return s
}

// idle reports at little cost for most pods that decide would return nothing to do.
func idle(pod *corev1.Pod, l behaviour) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	if terminal(pod) {
		return true
	}
	if pod.Status.Phase != corev1.PodRunning || pod.Spec.RestartPolicy != corev1.RestartPolicyAlways || l.failureRate > 0 || len(pod.Spec.ReadinessGates) > 0 ||
		pod.Status.ObservedGeneration != pod.Generation || pod.Spec.ActiveDeadlineSeconds != nil {
		return false
	}
	if pod.Annotations[annotationRunsFor] != "" || pod.Annotations[annotationExitCode] != "" {
		return false
	}
	return !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue // set by another client
	})
}

// stop terminates a pod that is being deleted.
func (r *report) stop() step {
	pod := r.pod
	grace := time.Duration(0)
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil {
		grace = time.Duration(*seconds) * time.Second
	}
	finish := step{remove: grace > 0} // with no grace period left it only waits for finalizers
	switch {
	case terminal(pod) && !isRunning(pod):
		return finish
	case isRunning(pod) && !terminal(pod):
		deletedAt := pod.DeletionTimestamp.Add(-grace)
		if due := deletedAt.Add(min(r.behaviour.stopsAfter, grace)); r.now.Before(due) {
			return step{requeueAt: due}
		}
	}
	finish.status = r.stopped()
	return finish
}

// precise returns since if it is reported with a fraction of a second, otherwise reported.
func precise(reported, since time.Time) time.Time {
	if d := since.Sub(reported); d >= 0 && d < time.Second {
		return since
	}
	return reported
}

func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// hasStarted reports whether a container of the pod was ever started.
func hasStarted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil
	})
}

// isRunning reports whether a container of the pod runs.
func isRunning(pod *corev1.Pod) bool {
	running := func(s corev1.ContainerStatus) bool { return s.State.Running != nil }
	return slices.ContainsFunc(pod.Status.ContainerStatuses, running) || slices.ContainsFunc(pod.Status.InitContainerStatuses, running)
}

// deadline returns when activeDeadlineSeconds end; zero is never.
func deadline(pod *corev1.Pod) time.Time {
	if pod.Spec.ActiveDeadlineSeconds == nil || pod.Status.StartTime == nil { // the status report that starts the pod requeues it
		return time.Time{}
	}
	return pod.Status.StartTime.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second)
}
