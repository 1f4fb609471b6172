package job

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

// burst is how many pods are created or deleted in one reconcile. The rest follows when the caches have observed them.
const burst = 500

// end deletes the active pods of a Job that ends.
func (s *state) end() controller.Decision {
	if len(s.active) == 0 {
		return s.track(nil)
	}
	var deletes []controller.Action
	for _, pod := range s.active {
		deletes = append(deletes, s.deletePod(pod))
	}
	return controller.Decision{Actions: []controller.Action{controller.Parallel(burst, deletes...)}, Then: func(err error) controller.Decision {
		if err != nil {
			s.ending = nil // not yet: some pods may still run
			s.addFailures("FailedDelete", "Error deleting: %v", err)
			return s.track(err)
		}
		s.noteDeleted(s.active)
		return s.track(nil)
	}}
}

// manage creates or deletes pods, so that as many are active as should be.
func (s *state) manage() controller.Decision {
	want := s.wanted()
	remove := victims(s.job, s.active, max(len(s.active)-want, 0))
	if !suspended(s.job) {
		remove = remove[:min(len(remove), burst)]
	}
	if len(remove) > 0 {
		return s.remove(remove)
	}
	if replacesOnlyFailed(s.job) {
		want -= int(s.terminating)
	}
	if missing := want - len(s.active); missing > 0 && !suspended(s.job) {
		return s.create(min(missing, burst))
	}
	return s.checkComplete(true, nil)
}

// wanted returns how many pods should be active.
func (s *state) wanted() int {
	parallelism := int(*s.job.Spec.Parallelism)
	switch {
	case suspended(s.job):
		return 0
	case s.job.Spec.Completions != nil:
		return max(min(int(*s.job.Spec.Completions-s.succeeded), parallelism), 0)
	case s.succeeded > 0:
		return len(s.active) // one has succeeded, so no more are created; the others run to their end
	default:
		return parallelism
	}
}

// remove deletes pods without counting them. Each is marked when its finalizer is removed, so that a loop that is restarted between the two
// requests still deletes it. A pod that has changed since may be terminal by now, and then it counts.
func (s *state) remove(pods []*corev1.Pod) controller.Decision {
	var deletes []controller.Action
	for _, pod := range pods {
		steps := []controller.Action{s.deletePod(pod)}
		if tracked(pod) {
			steps = append([]controller.Action{controller.Patch(pod, "", finalizerPatchType, surplusPatch(pod))}, steps...)
		}
		deletes = append(deletes, controller.SlowStart(nil, steps...)) // the patch, then the deletion
	}
	return controller.Decision{Actions: []controller.Action{controller.Parallel(burst, deletes...)}, Then: func(err error) controller.Decision {
		err = controller.FilterOut(err, apierrors.IsNotFound)
		if changed := controller.FilterOut(err, func(err error) bool { return !apierrors.IsConflict(err) }); changed != nil {
			return controller.Decision{Err: changed}
		}
		if err != nil {
			s.addFailures("FailedDelete", "Error deleting: %v", err)
			return s.checkComplete(true, err)
		}
		s.noteDeleted(pods)
		return s.checkComplete(true, nil)
	}}
}

// removeSurplus deletes pods that were marked by remove.
func (s *state) removeSurplus(pods []*corev1.Pod) controller.Decision {
	var deletes []controller.Action
	for _, pod := range pods {
		deletes = append(deletes, s.deletePod(pod))
	}
	return controller.Decision{Actions: []controller.Action{controller.Parallel(burst, deletes...)}}
}

func (s *state) deletePod(pod *corev1.Pod) controller.Action {
	return controller.SlowStart(nil, controller.Delete(pod, metav1.DeleteOptions{}),
		controller.Event(s.job, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", pod.Name))
}

// noteDeleted updates the counts for active pods that have just been deleted.
func (s *state) noteDeleted(pods []*corev1.Pod) {
	n := int32(len(pods))
	s.running -= n
	s.terminating += n
	s.ready -= countReady(pods)
	for _, pod := range pods {
		s.deleted.Insert(pod.UID)
	}
}

// create creates n pods, unless failed pods are in back-off.
func (s *state) create(n int) controller.Decision {
	list := make([]int, n) // the indexes, if the Job has any
	if indexed(s.job) {
		list = s.pendingIndexes(n)
	}
	if s.job.Spec.BackoffLimitPerIndex != nil && indexed(s.job) {
		list = s.dueIndexes(list)
	} else if wait := backoff(s.job, s.pods, s.now); wait > 0 {
		s.requeue(wait)
		list = nil
	}
	if len(list) == 0 {
		return s.checkComplete(true, nil)
	}
	chosen := map[string]bool{}
	var creates []controller.Action
	for _, index := range list {
		pod := newPod(s.job, index, s.waiting[index], func(name string) bool { return chosen[name] || s.taken(name) })
		chosen[pod.Name] = true
		creates = append(creates, controller.SlowStart(nil, controller.Create(pod),
			controller.Event(s.job, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", pod.Name)))
	}
	s.running += int32(len(list))
	failedCreates := 0
	return controller.Decision{Actions: []controller.Action{controller.SlowStart(func(failed int) { failedCreates = failed }, creates...)},
		Then: func(err error) controller.Decision {
			s.running -= int32(failedCreates)
			err = controller.FilterOut(err, func(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) })
			s.addFailures("FailedCreate", "Error creating: %v", controller.FilterOut(err, apierrors.IsAlreadyExists)) // created by a request before the loop was restarted
			return s.checkComplete(true, err)
		}}
}

// pendingIndexes returns the first n indexes that have neither succeeded nor failed and that have no pod.
func (s *state) pendingIndexes(n int) []int {
	var busy []int
	for _, pod := range s.pods {
		if i := indexOf(pod); i != noIndex && (owned.Active(pod) || replacesOnlyFailed(s.job) && owned.Terminating(pod)) {
			busy = append(busy, i)
		}
	}
	return s.completed.union(indexSet(busy)).union(s.failedIndexes).missing(n, int(*s.job.Spec.Completions))
}

// dueIndexes returns those indexes that are not in back-off, and requeues the Job for when the others are due.
func (s *state) dueIndexes(list []int) []int {
	var due []int
	for _, i := range list {
		if wait := backoffOfIndex(s.waiting[i], s.now); wait == 0 {
			due = append(due, i)
		} else {
			s.requeue(wait)
		}
	}
	return due
}

// checkComplete checks whether the Job is complete, after pods have been created or deleted. managed is false for a Job that is being deleted.
func (s *state) checkComplete(managed bool, err error) controller.Decision {
	complete := s.running == 0 && s.succeeded > 0
	if n := s.job.Spec.Completions; n != nil {
		complete = s.running == 0 && s.succeeded >= *n
	}
	switch {
	case complete:
		s.ending = s.condition(batchv1.JobSuccessCriteriaMet, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
	case managed && suspended(s.job):
		if s.setCondition(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended") {
			s.next.Status.StartTime = nil
			s.events = append(s.events, controller.Event(s.job, corev1.EventTypeNormal, "Suspended", "Job suspended"))
		}
	case managed:
		if s.setCondition(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed") {
			s.next.Status.StartTime = s.time() // activeDeadlineSeconds counts from the last start or resumption
			s.events = append(s.events, controller.Event(s.job, corev1.EventTypeNormal, "Resumed", "Job resumed"))
		}
	}
	return s.track(err)
}

// addFailures adds a warning Event for each error.
func (s *state) addFailures(reason, format string, err error) {
	for _, e := range controller.Errors(err) {
		s.failures = append(s.failures, controller.Event(s.job, corev1.EventTypeWarning, reason, format, e))
	}
}
