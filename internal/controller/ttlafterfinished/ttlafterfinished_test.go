package ttlafterfinished_test

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/stories"
	"skiff/internal/controller/ttlafterfinished"
)

func TestStories(t *testing.T) { stories.Run(t, ttlafterfinished.New, stories.Options{}) }

// Of Jobs that finish at the same time, the one whose TTL has passed is deleted, in the foreground; the others stay.
func TestDeletes(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, ttlafterfinished.New)
	jobs := server.Client().BatchV1().Jobs("default")
	for name, ttl := range map[string]*int32{"soon": new(int32(1)), "late": new(int32(1000)), "kept": nil, "running": new(int32(0))} {
		job, err := jobs.Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{TTLSecondsAfterFinished: ttl,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if name == "running" {
			continue
		}
		now := metav1.NewTime(time.Now().Truncate(time.Second))
		job.Status = batchv1.JobStatus{StartTime: &now, CompletionTime: &now, Succeeded: 1, UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{}, Conditions: []batchv1.JobCondition{
			{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: now, LastProbeTime: now},
			{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now, LastProbeTime: now}}}
		if _, err := jobs.UpdateStatus(t.Context(), job, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	deleting := map[string]bool{}
	controllertest.Eventually(t, func() string {
		list, err := jobs.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range list.Items {
			deleting[job.Name] = job.DeletionTimestamp != nil
			if job.DeletionTimestamp != nil && (len(job.Finalizers) != 1 || job.Finalizers[0] != metav1.FinalizerDeleteDependents) {
				t.Errorf("%s ends with %v", job.Name, job.Finalizers)
			}
		}
		if !deleting["soon"] {
			return "the end of a job whose time is over"
		}
		return ""
	})
	if deleting["late"] || deleting["kept"] || deleting["running"] || len(deleting) != 4 {
		t.Errorf("deleting %v", deleting)
	}
}
