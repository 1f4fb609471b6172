package job

import (
	"context"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

var jobKind = batchv1.SchemeGroupVersion.WithKind("Job")

// podKeyPrefix begins the names of keys that are not Jobs but pods whose Job no longer tracks them.
const podKeyPrefix = "pod/"

// New returns the loop. Its keys are Jobs, and pods without a Job that tracks them.
func New(deps controller.Deps) controller.Loop {
	jobs, pods := deps.Informers.Batch().V1().Jobs(), deps.Informers.Core().V1().Pods().Informer()
	owned.Index(pods)
	owned.IndexSelectors(jobs.Informer(), selectorOf)
	l := &loop{jobs: jobs.Lister(), jobIndex: jobs.Informer().GetIndexer(), pods: pods.GetIndexer()}
	return controller.Loop{
		Name: "job-controller", QueueName: "job",
		Watch: []controller.Watch{
			{Informer: jobs.Informer(), Type: &batchv1.Job{}, Keys: l.keysOfJob},
			{Informer: pods, Type: &corev1.Pod{}, Keys: l.keysOfPod},
		},
		Reconcile: l.reconcile,
	}
}

type loop struct {
	jobs     batchlisters.JobLister
	jobIndex cache.Indexer // of the same Jobs
	pods     cache.Indexer
}

func selectorOf(job *batchv1.Job) *metav1.LabelSelector { return job.Spec.Selector }

// keysOfJob returns the Job, and if it was deleted its pods that still have the finalizer.
func (l *loop) keysOfJob(before, after metav1.Object) []controller.Key {
	if after != nil {
		return []controller.Key{controller.KeyOf(after)}
	}
	keys := []controller.Key{controller.KeyOf(before)}
	for _, pod := range owned.By[*corev1.Pod](l.pods, before.GetUID()) {
		if tracked(pod) {
			keys = append(keys, podKey(pod))
		}
	}
	return keys
}

// keysOfPod returns the Jobs that a change of a pod concerns, and the pod itself if no Job counts it.
func (l *loop) keysOfPod(before, after metav1.Object) []controller.Key {
	keys := owned.Keys(jobKind.Kind, before, after, func(pod metav1.Object) []controller.Key {
		return owned.Selecting(l.jobIndex, selectorOf, pod)
	})
	keys = slices.DeleteFunc(keys, func(key controller.Key) bool {
		job, err := l.jobs.Jobs(key.Namespace).Get(key.Name)
		return err == nil && finished(job) // thousands of its pods may be deleted, one by one
	})
	if pod, ok := after.(*corev1.Pod); ok && tracked(pod) && l.abandoned(pod) {
		keys = append(keys, podKey(pod))
	}
	return keys
}

func podKey(pod metav1.Object) controller.Key {
	return controller.Key{Namespace: pod.GetNamespace(), Name: podKeyPrefix + pod.GetName()}
}

// abandoned reports whether no Job will count a pod that has the finalizer: its Job was deleted or has finished, or it has no owner.
func (l *loop) abandoned(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return true
	}
	if owner.Kind != jobKind.Kind || owner.APIVersion != batchv1.SchemeGroupVersion.String() {
		return false // another owner handles it
	}
	job, err := l.jobs.Jobs(pod.Namespace).Get(owner.Name)
	if err != nil || job.UID != owner.UID {
		return true
	}
	return !managedElsewhere(job) && finished(job)
}

func (l *loop) reconcile(key controller.Key, now time.Time) controller.Decision {
	if name, ok := strings.CutPrefix(key.Name, podKeyPrefix); ok {
		return l.reconcilePod(controller.Key{Namespace: key.Namespace, Name: name})
	}
	job, err := l.jobs.Jobs(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return controller.Nothing
	}
	if err != nil {
		return controller.Decision{Err: err}
	}
	if managedElsewhere(job) {
		return controller.Nothing
	}
	if finished(job) {
		return release(owned.By[*corev1.Pod](l.pods, job.UID))
	}
	selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector)
	if err != nil {
		return controller.Nothing // an invalid selector stays invalid until the spec changes
	}
	claims := owned.Claim[*corev1.Pod](l.pods, job, jobKind, selector, owned.CanAdopt(job, func(ctx context.Context, c *client.Client) (metav1.Object, error) {
		return c.Kubernetes().BatchV1().Jobs(job.Namespace).Get(ctx, job.Name, metav1.GetOptions{})
	}), batchv1.JobTrackingFinalizer)
	if len(claims.Actions) > 0 {
		return controller.Decision{Actions: claims.Actions} // the pods' changes requeue the Job
	}
	return decide(observed{job: job, pods: claims.Owned, taken: func(name string) bool {
		_, exists, err := l.pods.GetByKey(key.Namespace + "/" + name)
		return exists || err != nil
	}}, now)
}

// reconcilePod removes the finalizer of a pod that no Job counts.
func (l *loop) reconcilePod(key controller.Key) controller.Decision {
	obj, exists, err := l.pods.GetByKey(key.String())
	if err != nil || !exists {
		return controller.Decision{Err: err}
	}
	if pod, ok := obj.(*corev1.Pod); ok && tracked(pod) && l.abandoned(pod) {
		return release([]*corev1.Pod{pod})
	}
	return controller.Nothing
}

// managedElsewhere reports whether spec.managedBy names another controller.
func managedElsewhere(job *batchv1.Job) bool {
	return job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != batchv1.JobControllerName
}

// finished reports whether a Job is complete or has failed.
func finished(job *batchv1.Job) bool {
	return isTrue(job.Status.Conditions, batchv1.JobComplete) != nil || isTrue(job.Status.Conditions, batchv1.JobFailed) != nil
}
