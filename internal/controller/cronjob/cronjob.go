package cronjob

import (
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

var cronJobKind = batchv1.SchemeGroupVersion.WithKind("CronJob")

// New returns the loop. Its keys are CronJobs.
func New(deps controller.Deps) controller.Loop {
	cronJobs, jobs := deps.Informers.Batch().V1().CronJobs(), deps.Informers.Batch().V1().Jobs()
	owned.Index(jobs.Informer())
	l := &loop{cronJobs: cronJobs.Lister(), jobs: jobs.Lister(), jobIndex: jobs.Informer().GetIndexer(), skew: newSkew(deps.Metrics), changes: map[controller.Key]change{}}
	return controller.Loop{
		Name: "cronjob-controller", QueueName: "cronjob",
		Workers: 20, // most CronJobs are due at the same time, at the full minute
		Watch: []controller.Watch{
			{Informer: cronJobs.Informer(), Type: &batchv1.CronJob{}},
			{Informer: jobs.Informer(), Type: &batchv1.Job{}, Keys: keysOfJob},
		},
		Reconcile: l.reconcile,
	}
}

type loop struct {
	cronJobs batchlisters.CronJobLister
	jobs     batchlisters.JobLister
	jobIndex cache.Indexer // of the same Jobs
	skew     skew

	mu      sync.Mutex
	changes map[controller.Key]change // one for each CronJob
}

// change is when a CronJob's schedule was observed to have changed; at is zero for the schedule that was observed first.
type change struct {
	uid            types.UID
	schedule, zone string
	at             time.Time
}

// keysOfJob returns the CronJobs that a change of a Job concerns.
func keysOfJob(before, after metav1.Object) []controller.Key {
	if after == nil { // the CronJob lists the Job as active
		if owner := metav1.GetControllerOfNoCopy(before); owner != nil && owner.Kind == cronJobKind.Kind {
			return []controller.Key{{Namespace: before.GetNamespace(), Name: owner.Name}}
		}
		return nil
	}
	return owned.Keys(cronJobKind.Kind, before, after, func(metav1.Object) []controller.Key { return nil })
}

func (l *loop) reconcile(key controller.Key, now time.Time) controller.Decision {
	cronJob, err := l.cronJobs.CronJobs(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		l.mu.Lock()
		delete(l.changes, key)
		l.mu.Unlock()
		return controller.Nothing
	}
	if err != nil {
		return controller.Decision{Err: err}
	}
	return decide(observed{
		cronJob: cronJob, jobs: owned.By[*batchv1.Job](l.jobIndex, cronJob.UID), rescheduled: l.rescheduledAt(key, cronJob, now), skew: l.skew,
		job: func(name string) *batchv1.Job {
			job, err := l.jobs.Jobs(key.Namespace).Get(name)
			if err != nil {
				return nil
			}
			return job
		},
	}, now)
}

// rescheduledAt returns when a CronJob's schedule was changed, and zero if that was not observed. It is never after now, wherever the clock was set to.
func (l *loop) rescheduledAt(key controller.Key, cronJob *batchv1.CronJob, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	is := change{uid: cronJob.UID, schedule: cronJob.Spec.Schedule, zone: zoneOf(cronJob)}
	if was, known := l.changes[key]; known && was.uid == is.uid {
		if is.at = was.at; was.schedule != is.schedule || was.zone != is.zone || was.at.After(now) {
			is.at = now
		}
	}
	l.changes[key] = is
	return is.at
}
