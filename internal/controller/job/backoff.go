package job

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/controller/owned"
)

// After a pod has failed, the next is created no sooner than firstBackoff later, twice as long after each further failure in a row, up to maxBackoff.
const (
	firstBackoff = 10 * time.Second
	maxBackoff   = 10 * time.Minute
)

// backoff returns how long no pod may be created. Pods count that failed since one last succeeded, as far as they still exist.
func backoff(job *batchv1.Job, pods []*corev1.Pod, now time.Time) time.Duration {
	var success, failure time.Time
	for _, pod := range pods {
		if pod.Status.Phase == corev1.PodSucceeded {
			success = latest(success, endOf(pod))
		}
	}
	n := 0
	for _, pod := range pods {
		if at := endOf(pod); failed(job, pod) && at.After(success) {
			n++
			failure = latest(failure, at)
		}
	}
	return remaining(n, failure, now)
}

// backoffOfIndex returns how long no pod may be created for an index whose last pod failed.
func backoffOfIndex(last *corev1.Pod, now time.Time) time.Duration {
	if last == nil {
		return 0
	}
	counted, ignored := failures(last)
	return remaining(counted+ignored+1, endOf(last), now)
}

func remaining(failures int, last, now time.Time) time.Duration {
	if failures == 0 {
		return 0
	}
	wait := firstBackoff
	for i := 1; i < failures && wait < maxBackoff; i++ {
		wait = min(2*wait, maxBackoff)
	}
	return max(last.Add(wait).Sub(now), 0)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// endOf returns when a pod ended, as well as is known: when its last container terminated, when it ceased to be ready, when its deletion began,
// or else when it was created.
func endOf(pod *corev1.Pod) time.Time {
	if at, ok := endOfContainers(pod); ok {
		return at
	}
	if c := owned.ReadyCondition(pod); c != nil && c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	if at := pod.DeletionTimestamp; at != nil {
		if grace := pod.DeletionGracePeriodSeconds; grace != nil {
			return at.Add(-time.Duration(*grace) * time.Second)
		}
		return at.Time
	}
	return pod.CreationTimestamp.Time
}

// endOfContainers returns when the last of a pod's containers and sidecars terminated, if all have.
func endOfContainers(pod *corev1.Pod) (at time.Time, all bool) {
	check := func(s *corev1.ContainerStatus) bool {
		if s.State.Terminated == nil || s.State.Terminated.FinishedAt.IsZero() {
			return false
		}
		at = latest(at, s.State.Terminated.FinishedAt.Time)
		return true
	}
	for i := range pod.Status.ContainerStatuses {
		if !check(&pod.Status.ContainerStatuses[i]) {
			return at, false
		}
	}
	for i := range pod.Status.InitContainerStatuses {
		if s := &pod.Status.InitContainerStatuses[i]; isSidecar(pod, s.Name) && !check(s) {
			return at, false
		}
	}
	return at, !at.IsZero()
}
