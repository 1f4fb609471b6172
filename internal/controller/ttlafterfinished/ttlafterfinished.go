package ttlafterfinished

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller"
)

// New returns the loop. Its keys are Jobs.
func New(deps controller.Deps) controller.Loop {
	jobs := deps.Informers.Batch().V1().Jobs()
	lister := jobs.Lister()
	return controller.Loop{
		Name: "ttl-after-finished-controller", QueueName: "ttl_jobs_to_delete",
		Watch: []controller.Watch{{Informer: jobs.Informer(), Type: &batchv1.Job{}, Keys: func(_, after metav1.Object) []controller.Key {
			if job, ok := after.(*batchv1.Job); ok && expires(job) {
				return []controller.Key{controller.KeyOf(job)}
			}
			return nil
		}}},
		Reconcile: func(key controller.Key, now time.Time) controller.Decision {
			job, err := lister.Jobs(key.Namespace).Get(key.Name)
			if err != nil {
				return controller.Nothing
			}
			return decide(job, now)
		},
	}
}

// expires reports whether a Job has finished and has a TTL.
func expires(job *batchv1.Job) bool {
	return job.DeletionTimestamp == nil && job.Spec.TTLSecondsAfterFinished != nil && finished(job) != nil
}

// finished returns the condition that says that a Job has finished, or nil.
func finished(job *batchv1.Job) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

// decide deletes a Job whose TTL has passed.
func decide(job *batchv1.Job, now time.Time) controller.Decision {
	if !expires(job) {
		return controller.Nothing
	}
	at := finished(job).LastTransitionTime
	if at.IsZero() {
		return controller.Decision{Err: fmt.Errorf("unable to find the time when the Job %s/%s finished", job.Namespace, job.Name)}
	}
	if left := at.Add(time.Duration(*job.Spec.TTLSecondsAfterFinished) * time.Second).Sub(now); left > 0 {
		return controller.Decision{RequeueAfter: left}
	}
	// The precondition is exactly this version: in a newer one the TTL may be longer.
	policy, uid, version := metav1.DeletePropagationForeground, job.UID, job.ResourceVersion
	return controller.Decision{Actions: []controller.Action{controller.Delete(job, metav1.DeleteOptions{PropagationPolicy: &policy,
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})}}
}
