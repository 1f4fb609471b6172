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
	// maxUncounted bounds the pods in uncountedTerminatedPods, so that the status stays small.
	maxUncounted = 500
	// parallelPatches is how many finalizers are removed at a time.
	parallelPatches = 50
)

// track counts terminal pods: it writes the status, and then removes the finalizers of the pods in it. previousErr is the error of earlier
// actions, which requeues the Job.
func (s *state) track(previousErr error) controller.Decision {
	s.next.Status.Active, s.next.Status.Ready, s.next.Status.Terminating = s.running, &s.ready, &s.terminating
	s.countReleased()
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
		return controller.Decision{Actions: actions, RequeueAfter: s.requeueAfter, Err: previousErr}
	}
	return controller.Decision{Actions: actions, Then: func(err error) controller.Decision {
		if err != nil {
			return controller.Decision{Err: errors.Join(previousErr, err)} // a pod that is not in the status must keep its finalizer
		}
		return controller.Decision{Actions: []controller.Action{s.release(release)}, Then: func(err error) controller.Decision {
			return controller.Decision{RequeueAfter: s.requeueAfter, Err: errors.Join(previousErr, controller.FilterOut(err, isGone))}
		}}
	}}
}

// countReleased moves the pods whose finalizers are gone from uncountedTerminatedPods to the counters.
func (s *state) countReleased() {
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

// addUncounted adds terminal pods to uncountedTerminatedPods. It returns the pods whose finalizers may be removed after that, and whether these
// are all: one reconcile counts only so many.
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
			all = false // they follow in the next reconcile; those that are listed already must be released in this one
			continue
		}
		release = append(release, pod)
		switch {
		case failed:
			lists.Failed = append(lists.Failed, pod.UID)
		case succeeded && indexed(s.job):
			newIndexes++ // completedIndexes in the status makes sure that it is counted once
		case succeeded:
			lists.Succeeded = append(lists.Succeeded, pod.UID)
		}
	}
	return release, all
}

// toList reports whether a pod that may be released has to be listed first, as succeeded or as failed.
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

// conclude adds the condition that the Job ends with to its status: first the interim one, and the final one when all pods are counted and
// gone. all reports that no pods are left to be listed.
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
	if !all || len(lists.Succeeded)+len(lists.Failed) > 0 || s.terminating > 0 || s.hasTrackedPods() {
		return
	}
	s.setCondition(final, corev1.ConditionTrue, s.ending.Reason, s.ending.Message)
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

// hasTrackedPods reports whether a pod still has the finalizer. A Job may finish only when none has: nothing would remove it after that.
func (s *state) hasTrackedPods() bool { return slices.ContainsFunc(s.pods, tracked) }

// release removes the finalizers of pods.
func (s *state) release(pods []*corev1.Pod) controller.Action {
	var actions []controller.Action
	for _, pod := range pods {
		actions = append(actions, removeFinalizer(pod, s.deleted.Has(pod.UID)))
	}
	return controller.Parallel(parallelPatches, actions...)
}

// release removes the finalizers of pods that no Job counts.
func release(pods []*corev1.Pod) controller.Decision {
	var actions []controller.Action
	for _, pod := range pods {
		if tracked(pod) {
			actions = append(actions, removeFinalizer(pod, false))
		}
	}
	if len(actions) == 0 {
		return controller.Nothing
	}
	return controller.Decision{Actions: []controller.Action{controller.Parallel(parallelPatches, actions...)}, Then: func(err error) controller.Decision {
		return controller.Decision{Err: controller.FilterOut(err, isGone)}
	}}
}

// removeFinalizer removes a pod's finalizer. It is no error if the pod is gone. A pod that is being deleted may disappear with its finalizer
// before the caches observe the patch; nothing has to wait for that, as the pod is counted only once the caches have observed it.
func removeFinalizer(pod *corev1.Pod, deleted bool) controller.Action {
	what := fmt.Sprintf("release Pod %s", controller.KeyOf(pod))
	if deleted || pod.DeletionTimestamp != nil {
		return controller.Call(what, func(ctx context.Context, c *client.Client) error {
			_, err := c.Kubernetes().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, finalizerPatchType, finalizerPatch(pod), metav1.PatchOptions{})
			if isGone(err) {
				return nil
			}
			return err
		})
	}
	return controller.Patch(pod, "", finalizerPatchType, finalizerPatch(pod))
}

// isGone reports whether an error means that the pod is gone, or another of its name exists.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

const finalizerPatchType = types.StrategicMergePatchType

// finalizerPatch returns the patch that removes the finalizer of this pod and no other of its name.
func finalizerPatch(pod *corev1.Pod) []byte { return patchOf(map[string]any{"uid": pod.UID}) }

// surplusPatch returns the patch that removes the finalizer of this pod, if it has not changed, and marks it to be deleted.
func surplusPatch(pod *corev1.Pod) []byte {
	return patchOf(map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": map[string]string{surplusAnnotation: "true"}})
}

func patchOf(metadata map[string]any) []byte {
	metadata["$deleteFromPrimitiveList/finalizers"] = []string{batchv1.JobTrackingFinalizer}
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic(fmt.Sprintf("failed to encode finalizer patch: %v", err))
	}
	return data
}
