package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

// Jobs may be run by other controllers (spec.managedBy), so their status is validated for what clients rely on. A rule
// applies only to an update that changes the fields it is about: what was stored before the rule was introduced may stay.

func validateJobStatus(new, old *batchv1.Job) field.ErrorList {
	t := newTransition(new, old)
	p := t.status
	s := &new.Status
	p.NonNegative("active", int64(s.Active))
	p.NonNegative("succeeded", int64(s.Succeeded))
	p.NonNegative("failed", int64(s.Failed))
	check.NonNegativeIfSet(p, "ready", s.Ready)
	check.NonNegativeIfSet(p, "terminating", s.Terminating)
	t.uncountedPods()
	t.completion()
	t.finish()
	t.indexes()
	t.readiness()
	t.successCriteria()
	t.history()
	return p.Errors()
}

func has(j *batchv1.Job, t batchv1.JobConditionType, status corev1.ConditionStatus) bool {
	for i := range j.Status.Conditions {
		if c := &j.Status.Conditions[i]; c.Type == t && c.Status == status {
			return true
		}
	}
	return false
}

// outcome holds which conditions of a job are true.
type outcome struct{ complete, failed, failureTarget, successCriteriaMet, finished bool }

func outcomeOf(j *batchv1.Job) outcome {
	is := func(t batchv1.JobConditionType) bool { return has(j, t, corev1.ConditionTrue) }
	o := outcome{complete: is(batchv1.JobComplete), failed: is(batchv1.JobFailed),
		failureTarget: is(batchv1.JobFailureTarget), successCriteriaMet: is(batchv1.JobSuccessCriteriaMet)}
	o.finished = o.complete || o.failed
	return o
}

// changes holds which parts of a status an update changes.
type changes struct {
	finished, complete, failed, failureTarget, successCriteriaMet    bool
	active, ready, terminating, startTime, completionTime, uncounted bool
	completedIndexes, failedIndexes                                  bool
}

type transition struct {
	new, old    *batchv1.Job
	now, before outcome
	changed     changes
	status      *check.Part
}

func newTransition(new, old *batchv1.Job) *transition {
	t := &transition{new: new, old: old, now: outcomeOf(new), before: outcomeOf(old), status: check.At(field.NewPath("status"))}
	n, o := &new.Status, &old.Status
	differ := func(a, b any) bool { return !apiequality.Semantic.DeepEqual(a, b) }
	t.changed = changes{
		finished: t.now.finished != t.before.finished, complete: t.now.complete != t.before.complete,
		failed: t.now.failed != t.before.failed, failureTarget: t.now.failureTarget != t.before.failureTarget,
		successCriteriaMet: t.now.successCriteriaMet != t.before.successCriteriaMet,
		active:             n.Active != o.Active, ready: differ(n.Ready, o.Ready), terminating: differ(n.Terminating, o.Terminating),
		startTime: differ(n.StartTime, o.StartTime), completionTime: differ(n.CompletionTime, o.CompletionTime),
		uncounted:        differ(n.UncountedTerminatedPods, o.UncountedTerminatedPods),
		completedIndexes: n.CompletedIndexes != o.CompletedIndexes, failedIndexes: differ(n.FailedIndexes, o.FailedIndexes),
	}
	return t
}

// contradiction adds an error about the conditions if broken is set.
func (t *transition) contradiction(broken bool, detail string) {
	if broken {
		t.status.Invalid("conditions", field.OmitValueType{}, detail)
	}
}

func (t *transition) uncountedPods() {
	pods := t.new.Status.UncountedTerminatedPods
	if pods == nil {
		return
	}
	p := t.status.Child("uncountedTerminatedPods")
	seen := sets.New[types.UID]()
	for _, list := range []struct {
		name string
		uids []types.UID
	}{{"succeeded", pods.Succeeded}, {"failed", pods.Failed}} {
		for i, uid := range list.uids {
			switch {
			case uid == "":
				p.Item(list.name, i).Invalid("", uid, "must not be empty")
			case seen.Has(uid):
				p.Add(field.Duplicate(p.Path(list.name).Index(i), uid))
			default:
				seen.Insert(uid)
			}
		}
	}
}

// completion validates the status of a complete or failed job.
func (t *transition) completion() {
	s, c := &t.new.Status, t.changed
	t.contradiction((c.complete || c.failed) && t.now.complete && t.now.failed, "cannot set Complete=True and Failed=true conditions")
	t.contradiction((c.complete || c.failureTarget) && t.now.complete && t.now.failureTarget,
		"cannot set Complete=True and FailureTarget=true conditions")
	if c.complete || c.completionTime {
		if s.CompletionTime != nil && !t.now.complete {
			t.status.Invalid("completionTime", s.CompletionTime, "cannot set completionTime when there is no Complete=True condition")
		}
		t.status.Present("completionTime", s.CompletionTime != nil || !t.now.complete, "completionTime is required for Complete jobs")
	}
	if (c.startTime || c.completionTime) && s.StartTime != nil && s.CompletionTime != nil && s.CompletionTime.Before(s.StartTime) {
		t.status.Invalid("completionTime", s.CompletionTime, "must be equal to or after `startTime`")
	}
	t.contradiction((c.failed || c.failedIndexes) && t.now.failed && !t.now.failureTarget,
		"cannot set Failed=True condition without the FailureTarget=true condition")
	t.contradiction((c.complete || c.successCriteriaMet) && t.now.complete && !t.now.successCriteriaMet,
		"cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
}

func (t *transition) finish() {
	s, c := &t.new.Status, t.changed
	if !t.now.finished {
		return
	}
	if (c.finished || c.active) && s.Active > 0 {
		t.status.Invalid("active", s.Active, "active>0 is invalid for finished job")
	}
	neverNeeded := valueOr(t.new.Spec.Suspend, false) && valueOr(t.new.Spec.Completions, -1) == 0
	if (c.finished || c.startTime) && !neverNeeded {
		t.status.Present("startTime", s.StartTime != nil, "startTime is required for finished job")
	}
	if u := s.UncountedTerminatedPods; (c.finished || c.uncounted) && u != nil && len(u.Failed)+len(u.Succeeded) > 0 {
		t.status.Invalid("uncountedTerminatedPods", check.Internal(u), "must be empty for finished job")
	}
}

func (t *transition) indexes() {
	s, spec, c := &t.new.Status, &t.new.Spec, t.changed
	if c.completedIndexes && spec.Completions != nil {
		if _, err := countIndexes(s.CompletedIndexes, *spec.Completions); err != nil {
			t.status.Invalid("completedIndexes", s.CompletedIndexes, "error parsing completedIndexes: "+err.Error())
		}
	}
	if c.failedIndexes && spec.Completions != nil && spec.BackoffLimitPerIndex != nil && s.FailedIndexes != nil {
		if _, err := countIndexes(*s.FailedIndexes, *spec.Completions); err != nil {
			t.status.Invalid("failedIndexes", s.FailedIndexes, "error parsing failedIndexes: "+err.Error())
		}
	}
	if c.completedIndexes && s.CompletedIndexes != "" && !isIndexed(spec) {
		t.status.Invalid("completedIndexes", s.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode")
	}
	if s.FailedIndexes == nil {
		return
	}
	if c.failedIndexes && spec.BackoffLimitPerIndex == nil {
		t.status.Invalid("failedIndexes", *s.FailedIndexes, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")
	}
	if (c.failedIndexes || c.completedIndexes) && spec.Completions != nil {
		if index, both := overlap(s.CompletedIndexes, *s.FailedIndexes, *spec.Completions); both {
			t.status.Invalid("failedIndexes", *s.FailedIndexes,
				fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", index))
		}
	}
}

func (t *transition) readiness() {
	s, c := &t.new.Status, t.changed
	if (c.finished || c.terminating) && t.now.finished && valueOr(s.Terminating, 0) > 0 {
		t.status.Invalid("terminating", s.Terminating, "terminating>0 is invalid for finished job")
	}
	if (c.ready || c.active) && s.Ready != nil && *s.Ready > s.Active {
		t.status.Invalid("ready", *s.Ready, "cannot set more ready pods than active")
	}
}

func (t *transition) successCriteria() {
	met := t.now.successCriteriaMet
	t.contradiction(met && t.now.failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	t.contradiction(met && t.now.failureTarget, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	t.contradiction(t.new.Spec.SuccessPolicy != nil && !met && t.now.complete,
		"cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
}

// history refuses to undo what must be final.
func (t *transition) history() {
	n, o, c := &t.new.Status, &t.old.Status, t.changed
	t.contradiction(t.before.failed && !t.now.failed, "cannot disable the terminal Failed=True condition")
	t.contradiction(t.before.complete && !t.now.complete, "cannot disable the terminal Complete=True condition")
	t.contradiction(t.before.failureTarget && !t.now.failureTarget, "cannot disable the terminal FailureTarget=True condition")
	if n.Failed < o.Failed {
		t.status.Invalid("failed", n.Failed, "cannot decrease the failed counter")
	}
	// An indexed job that runs all its pods at once can be scaled down, which makes fewer of them count.
	spec := &t.new.Spec
	elastic := isIndexed(spec) && apiequality.Semantic.DeepEqual(spec.Completions, spec.Parallelism)
	if n.Succeeded < o.Succeeded && !elastic {
		t.status.Invalid("succeeded", n.Succeeded, "cannot decrease the succeeded counter")
	}
	if c.completionTime && n.CompletionTime != nil && o.CompletionTime != nil {
		t.status.Invalid("completionTime", n.CompletionTime, "field is immutable")
	}
	resuming := has(t.old, batchv1.JobSuspended, corev1.ConditionTrue) && has(t.new, batchv1.JobSuspended, corev1.ConditionFalse)
	if c.startTime && o.StartTime != nil && !resuming && !valueOr(spec.Suspend, false) {
		t.status.Invalid("startTime", n.StartTime, "field is immutable for unsuspended job once set")
	}
	t.contradiction(t.before.successCriteriaMet && !t.now.successCriteriaMet, "cannot disable the SuccessCriteriaMet=True condition")
	t.contradiction(t.before.complete && c.successCriteriaMet && t.now.successCriteriaMet,
		"cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
}
