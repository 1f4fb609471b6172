package job

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

// observed holds the state that a decision is made from. The pods are those that the Job controls and selects.
type observed struct {
	job   *batchv1.Job
	pods  []*corev1.Pod
	taken func(name string) bool // whether a pod has that name
}

// state holds where a Job stands, and the decision so far.
type state struct {
	observed
	now  time.Time
	next *batchv1.Job // copy of the Job with the new status

	active      []*corev1.Pod
	running     int32 // number of active pods, including those created in this reconcile and without those deleted
	ready       int32
	terminating int32

	listedSucceeded sets.Set[types.UID] // uids in uncountedTerminatedPods.succeeded
	listedFailed    sets.Set[types.UID] // uids in uncountedTerminatedPods.failed
	succeeded       int32               // pods that are counted or to be counted as succeeded
	failed          int32               // pods that are counted or to be counted as failed

	completedBefore indexes
	completed       indexes
	failedIndexes   indexes             // used if the Job has backoffLimitPerIndex
	waiting         map[int]*corev1.Pod // the last failed pod of each index, which is kept until it is replaced: its annotations count the index's failures

	// ending is the condition that the Job ends with: the interim one (FailureTarget, SuccessCriteriaMet) when it is found, or the final one.
	ending  *batchv1.JobCondition
	deleted sets.Set[types.UID] // pods deleted in this reconcile

	failures     []controller.Action // Events about failed writes
	events       []controller.Action // Events that are recorded when the status is written
	requeueAfter time.Duration       // 0: not requeued
}

// decide returns what to do about a Job that has not finished.
func decide(o observed, now time.Time) controller.Decision {
	if mode := o.job.Spec.CompletionMode; mode != nil && *mode != batchv1.NonIndexedCompletion && *mode != batchv1.IndexedCompletion {
		return controller.Decision{Actions: []controller.Action{
			controller.Event(o.job, corev1.EventTypeWarning, "UnknownCompletionMode", "Skipped Job sync because completion mode is unknown")}}
	}
	s := &state{observed: o, now: now, next: o.job.DeepCopy(), deleted: sets.New[types.UID]()}
	if s.next.Status.UncountedTerminatedPods == nil {
		s.next.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	if s.next.Status.StartTime == nil && !suspended(o.job) {
		s.next.Status.StartTime = s.time()
	}
	if pods := surplus(o.pods); len(pods) > 0 {
		return s.removeSurplus(pods)
	}
	s.count()
	s.findEnding()
	switch {
	case s.ending != nil:
		return s.end()
	case s.job.DeletionTimestamp == nil:
		return s.manage()
	default:
		return s.checkComplete(false, nil)
	}
}

func (s *state) time() *metav1.Time {
	t := metav1.NewTime(s.now)
	return &t
}

// count counts the pods by state.
func (s *state) count() {
	for _, pod := range s.pods {
		switch {
		case owned.Active(pod):
			s.active = append(s.active, pod)
		case owned.Terminating(pod):
			s.terminating++
		}
	}
	s.running, s.ready = int32(len(s.active)), countReady(s.active)
	uncounted := s.next.Status.UncountedTerminatedPods
	s.listedSucceeded, s.listedFailed = sets.New(uncounted.Succeeded...), sets.New(uncounted.Failed...)
	s.succeeded = s.next.Status.Succeeded + int32(len(uncounted.Succeeded))
	s.failed = s.next.Status.Failed + int32(len(uncounted.Failed))
	for _, pod := range s.pods {
		if !tracked(pod) || indexed(s.job) && !valid(s.job, indexOf(pod)) {
			continue
		}
		if pod.Status.Phase == corev1.PodSucceeded && !s.listedSucceeded.Has(pod.UID) {
			s.succeeded++
		}
		if failed(s.job, pod) && !s.listedFailed.Has(pod.UID) && matchFailurePolicy(s.job.Spec.PodFailurePolicy, pod).counts {
			s.failed++
		}
	}
	if indexed(s.job) {
		s.countIndexes()
	}
}

// countIndexes counts the completion indexes by state.
func (s *state) countIndexes() {
	completions := int(*s.job.Spec.Completions)
	s.completedBefore = parseIndexes(s.job.Status.CompletedIndexes, completions)
	if s.job.Status.FailedIndexes != nil {
		s.failedIndexes = parseIndexes(*s.job.Status.FailedIndexes, completions)
	}
	var succeeded, failing []int
	for _, pod := range s.pods {
		i := indexOf(pod)
		if !tracked(pod) || !valid(s.job, i) {
			continue
		}
		if pod.Status.Phase == corev1.PodSucceeded {
			succeeded = append(succeeded, i)
		}
		if s.failsIndex(pod) {
			failing = append(failing, i)
		}
	}
	s.completed = s.completedBefore.union(indexSet(succeeded))
	s.succeeded = int32(s.completed.total())
	if s.job.Spec.BackoffLimitPerIndex != nil {
		s.failedIndexes = s.failedIndexes.union(indexSet(failing))
		s.findWaiting()
	}
}

// failsIndex reports whether the failure of this pod fails its index for good.
func (s *state) failsIndex(pod *corev1.Pod) bool {
	if s.job.Spec.BackoffLimitPerIndex == nil || !failed(s.job, pod) {
		return false
	}
	v := matchFailurePolicy(s.job.Spec.PodFailurePolicy, pod)
	before, _ := failures(pod)
	return v.failIndex || v.counts && before >= int(*s.job.Spec.BackoffLimitPerIndex)
}

// findWaiting finds the last failed pod of each index that has to be replaced.
func (s *state) findWaiting() {
	busy := map[int]bool{}
	for _, pod := range s.active {
		busy[indexOf(pod)] = true
	}
	s.waiting = map[int]*corev1.Pod{}
	for _, pod := range s.pods {
		i := indexOf(pod)
		if !tracked(pod) || !valid(s.job, i) || !failed(s.job, pod) || busy[i] || s.completed.has(i) || s.failedIndexes.has(i) {
			continue
		}
		if other := s.waiting[i]; other == nil || !failedMore(other, pod) && !endOf(pod).Before(endOf(other)) {
			s.waiting[i] = pod
		}
	}
}

// failedMore reports whether a pod's index had failed more often before it than before another pod.
func failedMore(pod, than *corev1.Pod) bool {
	a, b := failures(pod)
	c, d := failures(than)
	return a+b > c+d
}

// findEnding finds out whether the Job is to end now. A condition that was found before stands; failure takes precedence over success. That all
// completions are reached is checked last, when no pods are active.
func (s *state) findEnding() {
	conditions := s.job.Status.Conditions
	if c := isTrue(conditions, batchv1.JobSuccessCriteriaMet); c != nil {
		s.ending = c.DeepCopy()
		return
	}
	if c := isTrue(conditions, batchv1.JobFailureTarget); c != nil {
		s.ending = s.condition(batchv1.JobFailed, c.Reason, c.Message)
		return
	}
	reason, message := s.failure()
	if reason != "" {
		s.ending = s.condition(batchv1.JobFailureTarget, reason, message)
		return
	}
	if indexed(s.job) {
		if message, met := matchSuccessPolicy(s.job.Spec.SuccessPolicy, int(*s.job.Spec.Completions), s.completed); met {
			s.ending = s.condition(batchv1.JobSuccessCriteriaMet, batchv1.JobReasonSuccessPolicy, message)
		}
	}
}

// failure returns why the Job has failed, or "".
func (s *state) failure() (reason, message string) {
	spec := &s.job.Spec
	if spec.PodFailurePolicy != nil {
		for _, pod := range s.pods {
			if failed(s.job, pod) {
				if message := matchFailurePolicy(spec.PodFailurePolicy, pod).failJob; message != "" {
					return batchv1.JobReasonPodFailurePolicy, message
				}
			}
		}
	}
	if s.failed > *spec.BackoffLimit || s.restartedTooOften() {
		return batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit"
	}
	if spec.ActiveDeadlineSeconds != nil && !suspended(s.job) {
		left := s.next.Status.StartTime.Add(time.Duration(*spec.ActiveDeadlineSeconds) * time.Second).Sub(s.now)
		if left <= 0 {
			return batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline"
		}
		s.requeue(left)
	}
	if spec.BackoffLimitPerIndex != nil && indexed(s.job) {
		n := s.failedIndexes.total()
		if spec.MaxFailedIndexes != nil && n > int(*spec.MaxFailedIndexes) {
			return batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes"
		}
		if n > 0 && n+s.completed.total() >= int(*spec.Completions) {
			return batchv1.JobReasonFailedIndexes, "Job has failed indexes"
		}
	}
	return "", ""
}

// restartedTooOften reports whether containers that are restarted in place were restarted more often than backoffLimit.
func (s *state) restartedTooOften() bool {
	if s.job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	var n int32
	for _, pod := range s.pods {
		if pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodPending {
			continue
		}
		for i := range pod.Status.InitContainerStatuses {
			n += pod.Status.InitContainerStatuses[i].RestartCount
		}
		for i := range pod.Status.ContainerStatuses {
			n += pod.Status.ContainerStatuses[i].RestartCount
		}
	}
	return n >= max(*s.job.Spec.BackoffLimit, 1)
}

// requeue requeues the Job after a time, unless it is requeued sooner.
func (s *state) requeue(after time.Duration) {
	if s.requeueAfter == 0 || after < s.requeueAfter {
		s.requeueAfter = after
	}
}
