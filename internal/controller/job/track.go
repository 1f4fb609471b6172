package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"skiff/internal/client"
	"skiff/internal/controller"
)

const (
	// maxUncounted is how many pods are in uncountedTerminatedPods at most, so that the status stays small.
	maxUncounted = 500
	// atATime is how many finalizers are taken at a time.
	atATime = 50
)

// track counts pods that have ended: it writes the status, and then takes the finalizers of the pods that the status knows of. problem is what
// went wrong before; the Job is looked at again for it.
func (s *state) track(problem error) controller.Decision {
	s.next.Status.Active, s.next.Status.Ready, s.next.Status.Terminating = s.running, &s.ready, &s.terminating
	s.fold()
	release, all := s.addUncounted()
	if indexed(s.job) {
		s.next.Status.Succeeded, s.next.Status.CompletedIndexes = int32(s.completed.total()), s.completed.String()
		if s.job.Spec.BackoffLimitPerIndex != nil {
			text := s.failedIndexes.String()
			s.next.Status.FailedIndexes = &text
		}
	}
	s.conclude(all)
	actions := s.failures
	if !equality.Semantic.DeepEqual(s.next.Status, s.job.Status) {
		actions = append(actions, controller.UpdateStatus(s.next))
	}
	actions = append(actions, s.events...)
	if len(release) == 0 {
		return controller.Decision{Actions: actions, Again: s.again, Err: problem}
	}
	return controller.Decision{Actions: actions, Then: func(err error) controller.Decision {
		if err != nil {
			return controller.Decision{Err: errors.Join(problem, err)} // what the status does not know of must not go
		}
		return controller.Decision{Actions: []controller.Action{s.release(release)}, Then: func(err error) controller.Decision {
			return controller.Decision{Again: s.again, Err: errors.Join(problem, controller.Without(err, gone))}
		}}
	}}
}

// fold counts the pods on the status's lists whose finalizers have gone.
func (s *state) fold() {
	held := sets.New[types.UID]()
	for _, pod := range s.pods {
		if tracked(pod) {
			held.Insert(pod.UID)
		}
	}
	status := &s.next.Status
	count := func(list *[]types.UID, counter *int32) {
		before := len(*list)
		*list = slices.DeleteFunc(*list, func(uid types.UID) bool { return !held.Has(uid) })
		*counter += int32(before - len(*list))
	}
	count(&status.UncountedTerminatedPods.Succeeded, &status.Succeeded)
	count(&status.UncountedTerminatedPods.Failed, &status.Failed)
}

// addUncounted puts pods that have ended on the status's lists. It returns those whose finalizers may go after that, and whether these are
// all: a look counts only so many.
func (s *state) addUncounted() (release []*corev1.Pod, all bool) {
	pods := s.pods
	if indexed(s.job) {
		pods = slices.SortedStableFunc(slices.Values(pods), func(a, b *corev1.Pod) int { return indexOf(a) - indexOf(b) })
	}
	lists := s.next.Status.UncountedTerminatedPods
	newIndexes := 0
	all = true
	for _, pod := range pods {
		if !tracked(pod) || !s.mayRelease(pod) {
			continue
		}
		succeeded, failed := s.toList(pod)
		if (succeeded || failed) && newIndexes+len(lists.Succeeded)+len(lists.Failed) >= maxUncounted {
			all = false // in the next look; those that are listed already must go in this
			continue
		}
		release = append(release, pod)
		switch {
		case failed:
			lists.Failed = append(lists.Failed, pod.UID)
		case succeeded && indexed(s.job):
			newIndexes++ // the index in the status is enough to count it but once
		case succeeded:
			lists.Succeeded = append(lists.Succeeded, pod.UID)
		}
	}
	return release, all
}

// toList reports whether a pod that may be released is to be listed before, as succeeded or as failed.
func (s *state) toList(pod *corev1.Pod) (asSucceeded, asFailed bool) {
	if s.listedSucceeded.Has(pod.UID) || s.listedFailed.Has(pod.UID) || indexed(s.job) && !valid(s.job, indexOf(pod)) {
		return false, false
	}
	if pod.Status.Phase == corev1.PodSucceeded {
		return !indexed(s.job) || !s.completedBefore.has(indexOf(pod)), false
	}
	fails := s.ending != nil && s.ending.Type != batchv1.JobSuccessCriteriaMet // when a Job fails, so do all its pods
	return false, (fails || failed(s.job, pod)) && matchFailurePolicy(s.job.Spec.PodFailurePolicy, pod).counts
}

// mayRelease reports whether a pod need not be kept once it is counted.
func (s *state) mayRelease(pod *corev1.Pod) bool {
	if s.job.DeletionTimestamp != nil || s.ending != nil || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	if !failed(s.job, pod) {
		return false
	}
	last := s.waiting[indexOf(pod)]
	return last == nil || last.UID != pod.UID
}

// conclude puts the condition under which the Job ends into its status: first the interim one, and when all pods are counted and gone, for
// good. all says that no pods are left to be put on the lists.
func (s *state) conclude(all bool) {
	if s.ending == nil {
		return
	}
	final := batchv1.JobFailed
	switch s.ending.Type {
	case batchv1.JobFailureTarget:
		s.next.Status.Conditions = append(s.next.Status.Conditions, *s.ending)
	case batchv1.JobSuccessCriteriaMet:
		final = batchv1.JobComplete
		if isTrue(s.next.Status.Conditions, batchv1.JobSuccessCriteriaMet) == nil {
			s.next.Status.Conditions = append(s.next.Status.Conditions, *s.ending)
		}
	}
	lists := s.next.Status.UncountedTerminatedPods
	if !all || len(lists.Succeeded)+len(lists.Failed) > 0 || s.terminating > 0 || s.holding() {
		return
	}
	s.put(final, corev1.ConditionTrue, s.ending.Reason, s.ending.Message)
	if final == batchv1.JobFailed {
		s.events = append(s.events, controller.Event(s.job, corev1.EventTypeWarning, s.ending.Reason, "%s", s.ending.Message))
		return
	}
	s.next.Status.CompletionTime = s.time()
	if n := s.job.Spec.Completions; n != nil && s.next.Status.Succeeded > *n {
		s.events = append(s.events, controller.Event(s.job, corev1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached"))
	}
	s.events = append(s.events, controller.Event(s.job, corev1.EventTypeNormal, "Completed", "Job completed"))
}

// holding reports whether a pod still has its finalizer. A Job is finished only when none has: after that nobody would take it.
func (s *state) holding() bool { return slices.ContainsFunc(s.pods, tracked) }

// release takes the finalizers of pods.
func (s *state) release(pods []*corev1.Pod) controller.Action {
	var actions []controller.Action
	for _, pod := range pods {
		actions = append(actions, takeFinalizer(pod, s.deleted.Has(pod.UID)))
	}
	return controller.Together(atATime, actions...)
}

// release takes the finalizers of pods that no Job counts.
func release(pods []*corev1.Pod) controller.Decision {
	var actions []controller.Action
	for _, pod := range pods {
		if tracked(pod) {
			actions = append(actions, takeFinalizer(pod, false))
		}
	}
	if len(actions) == 0 {
		return controller.Nothing
	}
	return controller.Decision{Actions: []controller.Action{controller.Together(atATime, actions...)}, Then: func(err error) controller.Decision {
		return controller.Decision{Err: controller.Without(err, gone)}
	}}
}

// takeFinalizer takes a pod's finalizer. That it is gone is as well. A pod that is being deleted may be gone with that, before anybody can
// await it; nothing depends on it, as it is counted only when the caches know.
func takeFinalizer(pod *corev1.Pod, deleted bool) controller.Action {
	what := fmt.Sprintf("release Pod %s", controller.KeyOf(pod))
	if deleted || pod.DeletionTimestamp != nil {
		return controller.Call(what, func(ctx context.Context, c *client.Client) error {
			_, err := c.Kubernetes().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, finalizerPatchType, finalizerPatch(pod), metav1.PatchOptions{})
			if gone(err) {
				return nil
			}
			return err
		})
	}
	return controller.Patch(pod, "", finalizerPatchType, finalizerPatch(pod))
}

// gone says of an error that the pod is not there any more, or another of its name is.
func gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

const finalizerPatchType = types.StrategicMergePatchType

// finalizerPatch takes the finalizer of this pod and no other of its name.
func finalizerPatch(pod *corev1.Pod) []byte { return patchOf(map[string]any{"uid": pod.UID}) }

// surplusPatch takes the finalizer of this pod, if it has not changed, and marks it as one to be deleted.
func surplusPatch(pod *corev1.Pod) []byte {
	return patchOf(map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": map[string]string{surplusAnnotation: "true"}})
}

func patchOf(metadata map[string]any) []byte {
	metadata["$deleteFromPrimitiveList/finalizers"] = []string{batchv1.JobTrackingFinalizer}
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic(fmt.Sprintf("encoding a patch of strings: %v", err))
	}
	return data
}
