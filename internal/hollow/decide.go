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

// Annotations that say how a pod's containers behave.
const (
	annotationReadyAfter = "hollow.skiff/ready-after"
	annotationRunsFor    = "hollow.skiff/runs-for"
	annotationExitCode   = "hollow.skiff/exit-code"
	annotationStopsAfter = "hollow.skiff/stops-after"
)

// life is how containers behave.
type life struct {
	readyAfter time.Duration
	runsFor    time.Duration
	stopsAfter time.Duration
	failures   float64 // the share of runs that fail
	ends       bool    // they end by themselves, whatever the restart policy
	exitCode   *int32
}

// of is how the containers of a pod behave. Annotations that make no sense say nothing.
func (l life) of(pod *corev1.Pod) life {
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
	l.ends = duration(annotationRunsFor, &l.runsFor)
	if code, err := strconv.ParseInt(pod.Annotations[annotationExitCode], 10, 32); err == nil {
		n := int32(code)
		l.exitCode = &n
	}
	return l
}

// fate is how a run of a container goes: whether it ends by itself, and how. It is always the same for the same run.
func (l life) fate(pod *corev1.Pod, c *corev1.Container, run int32) (ends bool, exitCode int32) {
	switch {
	case l.exitCode != nil:
		exitCode = *l.exitCode
	case l.failures > 0 && chance(string(pod.UID), c.Name, run) < l.failures:
		exitCode = 1
	}
	return l.ends || policy(pod, c) != corev1.RestartPolicyAlways || exitCode != 0, exitCode
}

// chance is a number from 0 up to 1.
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

// place is what a pod gets from its node.
type place struct {
	hostIP    string
	addresses func() []string // of the pod, one per IP family
}

// step is what to do about a pod.
type step struct {
	status *corev1.PodStatus // to be reported, if not nil
	remove bool              // when that is done, the pod has ended and can be deleted
	again  time.Time         // when there is more to do, if nothing changes until then; zero is never
}

// decide says what to do about a pod now. since is when its status was reported, if that is known better than the status says, which has
// only full seconds.
func decide(pod *corev1.Pod, l life, at place, since, now time.Time) step {
	s := decideAnyTime(pod, l.of(pod), at, since, now)
	if d := deadline(pod); !d.IsZero() && now.Before(d) && (s.again.IsZero() || d.Before(s.again)) && pod.DeletionTimestamp == nil && !ended(pod) {
		s.again = d
	}
	return s
}

// decideAnyTime is decide, for pods that may take as long as they like.
func decideAnyTime(pod *corev1.Pod, l life, at place, since, now time.Time) step {
	r := &report{pod: pod, life: l, place: at, now: now}
	switch {
	case pod.DeletionTimestamp != nil:
		return r.stop()
	case ended(pod):
		return step{}
	case pod.Status.StartTime == nil:
		if l.readyAfter == 0 {
			return step{status: r.started(), again: r.next}
		}
		return step{status: r.pending(), again: now.Add(l.readyAfter)}
	case !deadline(pod).IsZero() && !now.Before(deadline(pod)):
		return step{status: r.exceeded()}
	case !hasStarted(pod):
		if due := precise(pod.Status.StartTime.Time, since).Add(l.readyAfter); now.Before(due) {
			return step{again: due}
		}
		return step{status: r.started(), again: r.next}
	}
	status := r.running(since)
	s := step{again: r.next}
	if !equality.Semantic.DeepEqual(*status, pod.Status) {
		s.status = status
	}
	return s
}

// idle says of most pods at little cost that decide would have nothing to do.
func idle(pod *corev1.Pod, l life) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	if ended(pod) {
		return true
	}
	if pod.Status.Phase != corev1.PodRunning || pod.Spec.RestartPolicy != corev1.RestartPolicyAlways || l.failures > 0 || len(pod.Spec.ReadinessGates) > 0 ||
		pod.Status.ObservedGeneration != pod.Generation || pod.Spec.ActiveDeadlineSeconds != nil {
		return false
	}
	if pod.Annotations[annotationRunsFor] != "" || pod.Annotations[annotationExitCode] != "" {
		return false
	}
	return !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue // somebody else's word
	})
}

// stop ends a pod that is being deleted.
func (r *report) stop() step {
	pod := r.pod
	grace := time.Duration(0)
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil {
		grace = time.Duration(*seconds) * time.Second
	}
	finish := step{remove: grace > 0} // otherwise it is for its finalizers only that it is still there
	switch {
	case ended(pod) && !runs(pod):
		return finish
	case runs(pod) && !ended(pod):
		asked := pod.DeletionTimestamp.Add(-grace)
		if due := asked.Add(min(r.life.stopsAfter, grace)); r.now.Before(due) {
			return step{again: due}
		}
	}
	finish.status = r.stopped()
	return finish
}

// precise is the better of two times that are the same but for the fraction of a second.
func precise(reported, since time.Time) time.Time {
	if d := since.Sub(reported); d >= 0 && d < time.Second {
		return since
	}
	return reported
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// hasStarted says whether a container of the pod was ever started.
func hasStarted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil
	})
}

// runs says whether a container of the pod runs.
func runs(pod *corev1.Pod) bool {
	running := func(s corev1.ContainerStatus) bool { return s.State.Running != nil }
	return slices.ContainsFunc(pod.Status.ContainerStatuses, running) || slices.ContainsFunc(pod.Status.InitContainerStatuses, running)
}

// deadline is when the pod's time is over; zero is never.
func deadline(pod *corev1.Pod) time.Time {
	if pod.Spec.ActiveDeadlineSeconds == nil || pod.Status.StartTime == nil { // when it is taken up, its status comes back
		return time.Time{}
	}
	return pod.Status.StartTime.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second)
}
