package apps

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedbatchv1 "k8s.io/client-go/kubernetes/typed/batch/v1"
)

func (c cluster) cronJobs() typedbatchv1.CronJobInterface { return c.api.BatchV1().CronJobs("default") }

// cronJob creates a CronJob, whose pods run until they are deleted.
func (c cluster) cronJob(schedule string, changes ...func(*batchv1.CronJob)) *batchv1.CronJob {
	c.Helper()
	j := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: web()}, Spec: batchv1.CronJobSpec{Schedule: schedule,
		JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template("worker", runsFor, "1h")}}}}
	j.Spec.JobTemplate.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	for _, change := range changes {
		change(j)
	}
	return must[*batchv1.CronJob](c)(c.cronJobs().Create(c.ctx, j, metav1.CreateOptions{}))
}

// firstStart creates a suspended CronJob, and a Job as its loop would have created it five minutes ago, and waits until that is active.
func (c cluster) firstStart(policy batchv1.ConcurrencyPolicy) (job string) {
	c.Helper()
	j := c.cronJob("*/1 * * * ?", func(j *batchv1.CronJob) { j.Spec.ConcurrencyPolicy, j.Spec.Suspend = policy, new(true) })
	at := time.Now().Add(-5 * time.Minute).Truncate(time.Minute)
	job = fmt.Sprintf("web-%d", at.Unix()/60)
	must[*batchv1.Job](c)(c.api.BatchV1().Jobs("default").Create(c.ctx, &batchv1.Job{Spec: j.Spec.JobTemplate.Spec, ObjectMeta: metav1.ObjectMeta{Name: job,
		Annotations:     map[string]string{batchv1.CronJobScheduledTimestampAnnotation: at.Format(time.RFC3339)},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("CronJob"))}}}, metav1.CreateOptions{}))
	if got := c.activeJobs(1, ""); got[0] != job {
		c.Errorf("%s is active instead of %s", got, job)
	}
	return job
}

// unsuspend lets the starts be made that the CronJob has missed.
func (c cluster) unsuspend() {
	c.Helper()
	_, err := c.cronJobs().Patch(c.ctx, "web", types.MergePatchType, patch(object{"spec": object{"suspend": false}}), metav1.PatchOptions{})
	c.ok(err)
}

// activeJobs waits until the CronJob has a number of active Jobs that differ from one, and each has a pod that runs.
func (c cluster) activeJobs(want int, but string) []string {
	c.Helper()
	var names []string
	c.eventually(func() string {
		j := must[*batchv1.CronJob](c)(c.cronJobs().Get(c.ctx, "web", metav1.GetOptions{}))
		names = nil
		for _, ref := range j.Status.Active {
			if ref.Name != but {
				names = append(names, ref.Name)
			}
		}
		if len(names) != want || len(j.Status.Active) != want {
			return fmt.Sprintf("%d active jobs: %+v", want, j.Status)
		}
		for _, name := range names {
			job, err := c.api.BatchV1().Jobs("default").Get(c.ctx, name, metav1.GetOptions{})
			if err != nil || job.Status.Active != 1 {
				return fmt.Sprintf("a pod of %s: %v", name, err)
			}
		}
		return ""
	})
	return names
}

func TestCronJobObjects(t *testing.T) {
	c := start(t)
	j := c.cronJob("* */1 * * ?", func(j *batchv1.CronJob) { j.Spec.Suspend = new(true) })
	if list := must[*batchv1.CronJobList](c)(c.api.BatchV1().CronJobs("").List(c.ctx, metav1.ListOptions{LabelSelector: ofWeb})); len(list.Items) != 1 || list.Items[0].UID != j.UID {
		t.Errorf("listed %+v", list.Items)
	}
	watching, err := c.cronJobs().Watch(c.ctx, metav1.ListOptions{ResourceVersion: j.ResourceVersion, LabelSelector: ofWeb})
	c.ok(err)
	defer watching.Stop()
	j = must[*batchv1.CronJob](c)(c.cronJobs().Patch(c.ctx, "web", types.MergePatchType, patch(object{"metadata": object{"annotations": object{"patched": "true"}}}), metav1.PatchOptions{}))
	j.Annotations["updated"] = "true"
	j = must[*batchv1.CronJob](c)(c.cronJobs().Update(c.ctx, j, metav1.UpdateOptions{}))
	for range 2 {
		if event := <-watching.ResultChan(); event.Type != "MODIFIED" || event.Object.(*batchv1.CronJob).Annotations["patched"] != "true" {
			t.Errorf("watched %s %+v", event.Type, event.Object)
		}
	}
	last := metav1.NewTime(time.Now().Truncate(time.Second))
	j.Status.LastScheduleTime = &last
	j = must[*batchv1.CronJob](c)(c.cronJobs().UpdateStatus(c.ctx, j, metav1.UpdateOptions{}))
	if !j.Status.LastScheduleTime.Equal(&last) {
		t.Errorf("status %+v", j.Status)
	}
	j = must[*batchv1.CronJob](c)(c.cronJobs().Patch(c.ctx, "web", types.MergePatchType, patch(object{"metadata": object{"annotations": object{"patchedstatus": "true"}}, "status": object{"lastScheduleTime": nil}}), metav1.PatchOptions{}, "status"))
	if j.Status.LastScheduleTime != nil || j.Annotations["patchedstatus"] != "true" {
		t.Errorf("status %+v, annotations %v", j.Status, j.Annotations)
	}
	c.ok(c.cronJobs().Delete(c.ctx, "web", metav1.DeleteOptions{}))
	c.cronJob("* */1 * * ?")
	c.ok(c.cronJobs().DeleteCollection(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: ofWeb}))
	if list := must[*batchv1.CronJobList](c)(c.cronJobs().List(c.ctx, metav1.ListOptions{})); len(list.Items) > 0 {
		t.Errorf("left over: %+v", list.Items)
	}
}

func TestCronJobAllow(t *testing.T) {
	c := start(t)
	c.firstStart(batchv1.AllowConcurrent)
	c.unsuspend()
	c.activeJobs(2, "")
	c.running(2, "worker")
}

func TestCronJobForbid(t *testing.T) {
	c := start(t)
	first := c.firstStart(batchv1.ForbidConcurrent)
	c.unsuspend()
	c.eventually(func() string {
		if j := must[*batchv1.CronJob](c)(c.cronJobs().Get(c.ctx, "web", metav1.GetOptions{})); len(j.Status.Active) != 1 {
			return fmt.Sprintf("one active job: %+v", j.Status)
		}
		list := must[*corev1.EventList](c)(c.api.CoreV1().Events("default").List(c.ctx, metav1.ListOptions{FieldSelector: "reason=JobAlreadyActive"}))
		if len(list.Items) == 0 {
			return "an event that says that the start is not made"
		}
		return ""
	})
	if got := c.activeJobs(1, ""); got[0] != first {
		t.Errorf("%s instead of %s", got, first)
	}
	// A Job that somebody deletes is not active, so that the start is made late.
	c.ok(c.api.BatchV1().Jobs("default").Delete(c.ctx, first, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}))
	c.activeJobs(1, first)
}

func TestCronJobReplace(t *testing.T) {
	c := start(t)
	first := c.firstStart(batchv1.ReplaceConcurrent)
	c.unsuspend()
	c.activeJobs(1, first)
	c.running(1, "worker")
}

func TestCronJobSuspended(t *testing.T) {
	c := start(t)
	c.firstStart(batchv1.AllowConcurrent) // which the loop has recorded, and would have started the latest one after it
	if jobs := must[*batchv1.JobList](c)(c.api.BatchV1().Jobs("default").List(c.ctx, metav1.ListOptions{})); len(jobs.Items) != 1 {
		t.Errorf("%d jobs", len(jobs.Items))
	}
	c.unsuspend()
	c.activeJobs(2, "")
}
