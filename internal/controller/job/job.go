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

// podKeyPrefix begins the names of keys that are not about a Job but about a pod whose Job does not look after it any more.
const podKeyPrefix = "pod/"

// New makes the loop. Its keys are Jobs, and pods that have lost theirs.
func New(deps controller.Deps) controller.Loop {
	jobs, pods := deps.Informers.Batch().V1().Jobs(), deps.Informers.Core().V1().Pods().Informer()
	owned.Index(pods)
	owned.IndexSelectors(jobs.Informer(), selectorOf)
	l := &loop{jobs: jobs.Lister(), indexed: jobs.Informer().GetIndexer(), pods: pods.GetIndexer()}
	return controller.Loop{
		Name: "job-controller", Queue: "job",
		Watch: []controller.Watch{
			{Informer: jobs.Informer(), Of: &batchv1.Job{}, Keys: l.keysOfJob},
			{Informer: pods, Of: &corev1.Pod{}, Keys: l.keysOfPod},
		},
		Look: l.look,
	}
}

type loop struct {
	jobs    batchlisters.JobLister
	indexed cache.Indexer // of the same Jobs
	pods    cache.Indexer
}

func selectorOf(job *batchv1.Job) *metav1.LabelSelector { return job.Spec.Selector }

// keysOfJob has the pods of a Job that is gone lose their finalizers.
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

// keysOfPod finds the Jobs that a pod's change concerns, and the pod itself if no Job counts it.
func (l *loop) keysOfPod(before, after metav1.Object) []controller.Key {
	keys := owned.Keys(jobKind.Kind, before, after, func(pod metav1.Object) []controller.Key {
		return owned.Selecting(l.indexed, selectorOf, pod)
	})
	keys = slices.DeleteFunc(keys, func(key controller.Key) bool {
		job, err := l.jobs.Jobs(key.Namespace).Get(key.Name)
		return err == nil && finished(job) // thousands of pods may go with it, one by one
	})
	if pod, ok := after.(*corev1.Pod); ok && tracked(pod) && l.abandoned(pod) {
		keys = append(keys, podKey(pod))
	}
	return keys
}

func podKey(pod metav1.Object) controller.Key {
	return controller.Key{Namespace: pod.GetNamespace(), Name: podKeyPrefix + pod.GetName()}
}

// abandoned reports whether no Job will count a pod that has the finalizer: its Job is gone or has finished, or it never was a Job's.
func (l *loop) abandoned(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return true
	}
	if owner.Kind != jobKind.Kind || owner.APIVersion != batchv1.SchemeGroupVersion.String() {
		return false // somebody else's business
	}
	job, err := l.jobs.Jobs(pod.Namespace).Get(owner.Name)
	if err != nil || job.UID != owner.UID {
		return true
	}
	return !managedElsewhere(job) && finished(job)
}

func (l *loop) look(key controller.Key, now time.Time) controller.Decision {
	if name, ok := strings.CutPrefix(key.Name, podKeyPrefix); ok {
		return l.lookAtPod(controller.Key{Namespace: key.Namespace, Name: name})
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
		return controller.Nothing // it will not get better
	}
	claims := owned.Claim[*corev1.Pod](l.pods, job, jobKind, selector, owned.Alive(job, func(ctx context.Context, c *client.Client) (metav1.Object, error) {
		return c.Kubernetes().BatchV1().Jobs(job.Namespace).Get(ctx, job.Name, metav1.GetOptions{})
	}), batchv1.JobTrackingFinalizer)
	if len(claims.Actions) > 0 {
		return controller.Decision{Actions: claims.Actions} // the pods' changes have the Job looked at again
	}
	return decide(observed{job: job, pods: claims.Owned, taken: func(name string) bool {
		_, there, err := l.pods.GetByKey(key.Namespace + "/" + name)
		return there || err != nil
	}}, now)
}

// lookAtPod takes the finalizer of a pod that no Job counts.
func (l *loop) lookAtPod(key controller.Key) controller.Decision {
	obj, exists, err := l.pods.GetByKey(key.String())
	if err != nil || !exists {
		return controller.Decision{Err: err}
	}
	if pod, ok := obj.(*corev1.Pod); ok && tracked(pod) && l.abandoned(pod) {
		return release([]*corev1.Pod{pod})
	}
	return controller.Nothing
}

// managedElsewhere reports whether another controller runs the Job.
func managedElsewhere(job *batchv1.Job) bool {
	return job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != batchv1.JobControllerName
}

// finished reports whether nothing is to be done about a Job any more.
func finished(job *batchv1.Job) bool {
	return isTrue(job.Status.Conditions, batchv1.JobComplete) != nil || isTrue(job.Status.Conditions, batchv1.JobFailed) != nil
}
