package job

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) {
	stories.Run(t, New, stories.Options{Prepare: prepare, Show: show})
}

// prepare sets on Jobs and their pods what the API server and this loop set.
func prepare(obj controller.Object) {
	if job, ok := obj.(*batchv1.Job); ok {
		one, six := int32(1), int32(6)
		if job.Spec.Parallelism == nil {
			job.Spec.Parallelism = &one
		}
		if job.Spec.BackoffLimit == nil {
			job.Spec.BackoffLimit = &six
		}
		if job.Spec.Selector == nil {
			job.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"job-name": job.Name}}
			job.Spec.Template.Labels = map[string]string{"job-name": job.Name}
		}
		if job.Spec.Template.Spec.Containers == nil {
			job.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		}
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "Job" {
		return
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{"job-name": owner.Name}
	}
	switch i := slices.Index(pod.Finalizers, "counted"); {
	case i >= 0: // the story's way of saying that it has no finalizer any more
		pod.Finalizers = slices.Delete(pod.Finalizers, i, i+1)
	default:
		pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	}
}

// show prints what is particular about new pods.
func show(a controller.Action) string {
	verb, _, obj, ok := controller.Written(a)
	pod, isPod := obj.(*corev1.Pod)
	if !ok || !isPod || verb != "create" {
		return ""
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(pod.Annotations)) {
		words = append(words, strings.TrimPrefix(name, "batch.kubernetes.io/")+"="+pod.Annotations[name])
	}
	if pod.Spec.Hostname != "" {
		words = append(words, "hostname="+pod.Spec.Hostname)
	}
	return strings.Join(append(words, fmt.Sprint("finalizers=", strings.Join(pod.Finalizers, ","))), " ")
}
