package cronjob

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nameAt returns the name of the Job that starts at a time: a name for each minute.
func nameAt(cronJob *batchv1.CronJob, at time.Time) string {
	return cronJob.Name + "-" + strconv.FormatInt(at.Unix()/60, 10)
}

// jobAt returns the Job that starts at a time.
func jobAt(cronJob *batchv1.CronJob, at time.Time) (*batchv1.Job, error) {
	zone, err := time.LoadLocation(zoneOf(cronJob))
	if err != nil {
		return nil, err
	}
	template := cronJob.Spec.JobTemplate.DeepCopy()
	job := &batchv1.Job{Spec: template.Spec, ObjectMeta: metav1.ObjectMeta{
		Namespace: cronJob.Namespace, Name: nameAt(cronJob, at), Labels: template.Labels, Annotations: maps.Clone(template.Annotations),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cronJob, cronJobKind)},
	}}
	if job.Annotations == nil {
		job.Annotations = map[string]string{}
	}
	job.Annotations[batchv1.CronJobScheduledTimestampAnnotation] = at.In(zone).Format(time.RFC3339)
	return job, nil
}

// startOf returns the start that a Job was created for. ok is false if the Job was not created by this loop, but, say, by kubectl create job --from.
func startOf(cronJob *batchv1.CronJob, job *batchv1.Job) (at time.Time, ok bool) {
	at, err := time.Parse(time.RFC3339, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	return at, err == nil && job.Name == nameAt(cronJob, at)
}

// unrecorded reports whether a Job was created for a start that the status of its CronJob does not know: the loop was stopped in between.
func unrecorded(cronJob *batchv1.CronJob, job *batchv1.Job) (at time.Time, ok bool) {
	at, ok = startOf(cronJob, job)
	last := cronJob.Status.LastScheduleTime
	return at, ok && (last == nil || at.After(last.Time))
}

func refOf(job *batchv1.Job) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job",
		Namespace: job.Namespace, Name: job.Name, UID: job.UID, ResourceVersion: job.ResourceVersion}
}

// outcome returns the condition type that says how a Job has finished, or "".
func outcome(job *batchv1.Job) batchv1.JobConditionType {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c.Type
		}
	}
	return ""
}

// surplus returns the finished Jobs beyond the history limits, those that started first. A Job that the status does not know yet stays, as it
// is all that tells that its start was made.
func surplus(cronJob *batchv1.CronJob, jobs []*batchv1.Job) []*batchv1.Job {
	var out []*batchv1.Job
	for how, limit := range map[batchv1.JobConditionType]*int32{batchv1.JobComplete: cronJob.Spec.SuccessfulJobsHistoryLimit, batchv1.JobFailed: cronJob.Spec.FailedJobsHistoryLimit} {
		if limit == nil {
			continue
		}
		var finished []*batchv1.Job
		for _, job := range jobs {
			if _, unknown := unrecorded(cronJob, job); outcome(job) == how && job.DeletionTimestamp == nil && !unknown {
				finished = append(finished, job)
			}
		}
		slices.SortFunc(finished, byStart)
		out = append(out, finished[:max(len(finished)-int(*limit), 0)]...)
	}
	slices.SortFunc(out, byStart)
	return out
}

// byStart compares Jobs by the time at which they started, those that have not last, and by name.
func byStart(a, b *batchv1.Job) int {
	at := func(job *batchv1.Job) int64 {
		if job.Status.StartTime == nil {
			return 1<<63 - 1
		}
		return job.Status.StartTime.UnixNano()
	}
	return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a.Name, b.Name))
}
