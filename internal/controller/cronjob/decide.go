package cronjob

import (
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
)

const (
	// afterStart is how long after a start its CronJob is reconciled: clocks differ.
	afterStart = 100 * time.Millisecond
	// maxWait is the longest time until a CronJob is reconciled again: requeues do not notice that the clock was set, or that the machine slept.
	maxWait = time.Minute
)

// observed is what the decision about a CronJob follows from.
type observed struct {
	cronJob     *batchv1.CronJob
	jobs        []*batchv1.Job                 // those that it controls
	job         func(name string) *batchv1.Job // any Job of its namespace, or nil
	rescheduled time.Time                      // when its schedule was changed; zero if that was not observed
	skew        skew
}

// decide returns what to do about a CronJob.
func decide(o observed, now time.Time) controller.Decision {
	w := &work{observed: o, now: now, cronJob: o.cronJob.DeepCopy()}
	return w.remove(surplus(w.cronJob, w.jobs), func(error) controller.Decision {
		w.track()
		return w.schedule()
	})
}

// work is a decision under way.
type work struct {
	observed
	now           time.Time
	cronJob       *batchv1.CronJob // a copy, whose status is brought up to date
	statusChanged bool             // whether that status differs from what is stored
	events        []controller.Action
}

func (w *work) event(kind, reason, format string, args ...any) {
	w.events = append(w.events, controller.Event(w.observed.cronJob, kind, reason, format, args...))
}

// end writes what is left to write, and ends the decision.
func (w *work) end(after time.Duration, err error) controller.Decision {
	actions := w.events
	if w.statusChanged {
		actions = append(actions, controller.UpdateStatus(w.cronJob))
	}
	return controller.Decision{Actions: actions, RequeueAfter: after, Err: err}
}

// remove deletes Jobs one after the other, and goes on with next, which gets the errors of those that could not be deleted.
func (w *work) remove(jobs []*batchv1.Job, next func(failed error) controller.Decision) controller.Decision {
	if len(jobs) == 0 {
		return next(nil)
	}
	job, policy := jobs[0], metav1.DeletePropagationBackground
	return controller.Decision{Actions: []controller.Action{controller.Delete(job, metav1.DeleteOptions{PropagationPolicy: &policy})}, Then: func(err error) controller.Decision {
		if err != nil {
			w.event(corev1.EventTypeWarning, "FailedDelete", "Deleted job: %v", err)
			err = fmt.Errorf("delete job %s/%s: %w", job.Namespace, job.Name, err)
		} else {
			w.deactivate(job.UID)
			w.event(corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job %v", job.Name)
		}
		return w.remove(jobs[1:], func(failed error) controller.Decision { return next(errors.Join(err, failed)) })
	}}
}

func (w *work) activate(job *batchv1.Job) {
	w.cronJob.Status.Active = append(w.cronJob.Status.Active, refOf(job))
	w.statusChanged = true
}

// deactivate removes a Job from the active ones, and reports whether it was one.
func (w *work) deactivate(uid types.UID) bool {
	i := slices.IndexFunc(w.cronJob.Status.Active, func(ref corev1.ObjectReference) bool { return ref.UID == uid })
	if i < 0 {
		return false
	}
	w.cronJob.Status.Active = slices.Delete(w.cronJob.Status.Active, i, i+1)
	w.statusChanged = true
	return true
}

func (w *work) started(at time.Time) {
	w.cronJob.Status.LastScheduleTime = &metav1.Time{Time: at}
	w.statusChanged = true
}

// track brings the status up to date with the Jobs.
func (w *work) track() {
	for _, job := range w.jobs {
		w.trackJob(job)
	}
	for _, ref := range slices.Clone(w.cronJob.Status.Active) {
		owned := slices.ContainsFunc(w.jobs, func(job *batchv1.Job) bool { return job.UID == ref.UID })
		if job := w.job(ref.Name); !owned && (job == nil || job.UID != ref.UID) {
			w.deactivate(ref.UID)
			w.event(corev1.EventTypeNormal, "MissingJob", "Active job went missing: %v", ref.Name)
		}
	}
}

func (w *work) trackJob(job *batchv1.Job) {
	active := slices.ContainsFunc(w.cronJob.Status.Active, func(ref corev1.ObjectReference) bool { return ref.UID == job.UID })
	how := outcome(job)
	at, unknown := unrecorded(w.cronJob, job)
	if unknown {
		w.started(at)
	}
	if how == "" {
		switch _, ours := startOf(w.cronJob, job); {
		case active, job.DeletionTimestamp != nil:
		case ours:
			w.activate(job)
		case w.isNew(job.CreationTimestamp.Time):
			w.event(corev1.EventTypeWarning, "UnexpectedJob", "Saw a job that the controller did not create or forgot: %s", job.Name)
		}
		return
	}
	if w.deactivate(job.UID) {
		w.event(corev1.EventTypeNormal, "SawCompletedJob", "Saw completed job: %s, condition: %v", job.Name, how)
	}
	last := w.cronJob.Status.LastSuccessfulTime
	if ended := job.Status.CompletionTime; how == batchv1.JobComplete && ended != nil && (last == nil || ended.After(last.Time)) {
		w.cronJob.Status.LastSuccessfulTime = ended
		w.statusChanged = true
	}
}

// schedule creates the Job of the latest start that is due.
func (w *work) schedule() controller.Decision {
	spec := w.cronJob.Spec
	if w.cronJob.DeletionTimestamp != nil {
		return w.end(0, nil)
	}
	if _, err := time.LoadLocation(zoneOf(w.cronJob)); err != nil {
		w.event(corev1.EventTypeWarning, "UnknownTimeZone", "invalid timeZone: %q: %s", zoneOf(w.cronJob), err)
		return w.end(0, nil)
	}
	if spec.Suspend != nil && *spec.Suspend {
		return w.end(0, nil)
	}
	parsed, err := parse(w.cronJob)
	if err != nil {
		w.event(corev1.EventTypeWarning, "UnparseableSchedule", "unparseable schedule: %q : %s", spec.Schedule, err)
		return w.end(0, nil)
	}
	since, from := w.since()
	found, err := startsOf(parsed, since, from, w.now)
	if err != nil {
		w.event(corev1.EventTypeWarning, "InvalidSchedule", "invalid schedule: %s : %s", spec.Schedule, err)
		return w.end(0, nil)
	}
	wait := min(found.next.Add(afterStart).Sub(w.now), maxWait)
	if found.due.IsZero() {
		return w.end(wait, nil)
	}
	return w.start(found, wait)
}

// since returns the last start, or the creation, and the time from which starts are made: they are not if they were due before the schedule was
// changed, or longer ago than spec.startingDeadlineSeconds.
func (w *work) since() (since, from time.Time) {
	since = w.cronJob.CreationTimestamp.Time
	if last := w.cronJob.Status.LastScheduleTime; last != nil {
		since = last.Time
	}
	if w.rescheduled.After(since) {
		since = w.rescheduled
	}
	from = since
	if seconds := w.cronJob.Spec.StartingDeadlineSeconds; seconds != nil {
		if deadline := w.now.Add(-time.Duration(*seconds) * time.Second); deadline.After(from) {
			from = deadline
		}
	}
	return since, from
}

// start creates the Job of a start, as the concurrency policy has it.
func (w *work) start(found starts, wait time.Duration) controller.Decision {
	at := found.due
	if there := w.job(nameAt(w.cronJob, at)); there != nil {
		if metav1.IsControlledBy(there, w.cronJob) { // an earlier start of the same minute
			w.started(at)
		}
		return w.end(wait, nil)
	}
	switch active := w.activeJobs(); {
	case len(w.cronJob.Status.Active) == 0 || w.cronJob.Spec.ConcurrencyPolicy == batchv1.AllowConcurrent:
	case w.cronJob.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent:
		if w.isNew(at) {
			w.event(corev1.EventTypeNormal, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid")
		}
		return w.end(wait, nil)
	case w.cronJob.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent:
		return w.remove(active, func(failed error) controller.Decision {
			if failed != nil {
				return w.end(0, failed)
			}
			return w.create(found, wait)
		})
	}
	return w.create(found, wait)
}

func (w *work) activeJobs() []*batchv1.Job {
	var jobs []*batchv1.Job
	for _, ref := range w.cronJob.Status.Active {
		if job := w.job(ref.Name); job != nil && job.UID == ref.UID {
			jobs = append(jobs, job)
		}
	}
	return jobs
}

// isNew reports whether an Event about what happened at a time is still to be recorded: a CronJob is reconciled at least every maxWait.
func (w *work) isNew(at time.Time) bool { return w.now.Sub(at) < maxWait }

func (w *work) create(found starts, wait time.Duration) controller.Decision {
	at := found.due
	if found.missed > manyMissed {
		w.event(corev1.EventTypeWarning, "TooManyMissedTimes", "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	if zoneInSchedule(w.cronJob) {
		w.event(corev1.EventTypeWarning, "UnsupportedSchedule", "CRON_TZ or TZ used in schedule %q is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details", w.cronJob.Spec.Schedule)
	}
	job, err := jobAt(w.cronJob, at)
	if err != nil {
		return w.end(0, err)
	}
	create := controller.Create(job)
	return controller.Decision{Actions: []controller.Action{create}, Then: func(err error) controller.Decision {
		switch {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsAlreadyExists(err):
			return w.end(0, err) // where it exists, it will be observed: see start and track
		case err != nil:
			w.event(corev1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
			return w.end(0, err)
		}
		if created, ok := controller.Result(create).(*batchv1.Job); ok {
			job = created
		}
		w.skew.observe(job.CreationTimestamp.Sub(at))
		w.event(corev1.EventTypeNormal, "SuccessfulCreate", "Created job %v", job.Name)
		w.activate(job)
		w.started(at)
		return w.end(wait, nil)
	}}
}
