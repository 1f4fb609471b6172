package cronjob_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/cronjob"
	"skiff/test/seed"
)

// cluster is a server, and a clock for the loop.
type cluster struct {
	testing.TB
	*apitest.Server
	clock *atomic.Int64 // nanoseconds ahead of the real one
}

func start(t testing.TB, o ...apitest.Option) cluster {
	return cluster{t, apitest.Start(t, o...), &atomic.Int64{}}
}

func (c cluster) now() time.Time { return time.Now().Add(time.Duration(c.clock.Load())) }

func (c cluster) ok(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func newCronJob(name, schedule string, changes ...func(*batchv1.CronJobSpec)) *batchv1.CronJob {
	cronJob := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.CronJobSpec{Schedule: schedule,
		JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}, Annotations: map[string]string{"note": "kept"}},
			Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}}}
	for _, change := range changes {
		change(&cronJob.Spec)
	}
	return cronJob
}

func (c cluster) create(name, schedule string, changes ...func(*batchv1.CronJobSpec)) {
	c.Helper()
	_, err := c.Client().BatchV1().CronJobs("default").Create(c.Context(), newCronJob(name, schedule, changes...), metav1.CreateOptions{})
	c.ok(err)
}

func (c cluster) get(name string) *batchv1.CronJob {
	c.Helper()
	cronJob, err := c.Client().BatchV1().CronJobs("default").Get(c.Context(), name, metav1.GetOptions{})
	c.ok(err)
	return cronJob
}

// lookAgain makes the loop reconcile a CronJob, as it does by itself at least every minute.
func (c cluster) lookAgain(name string) {
	c.Helper()
	c.patch(name, fmt.Sprintf(`{"metadata":{"annotations":{"looked-at":"%d"}}}`, time.Now().UnixNano()))
}

func (c cluster) patch(name, patch string) {
	c.Helper()
	_, err := c.Client().BatchV1().CronJobs("default").Patch(c.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	c.ok(err)
}

func (c cluster) jobs() []batchv1.Job {
	c.Helper()
	list, err := c.Client().BatchV1().Jobs("default").List(c.Context(), metav1.ListOptions{})
	c.ok(err)
	return list.Items
}

// finish reports that a Job has completed, as the loop of Jobs would.
func (c cluster) finish(job *batchv1.Job) {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	job.Status = batchv1.JobStatus{StartTime: &now, CompletionTime: &now, Succeeded: 1, UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{}, Conditions: []batchv1.JobCondition{
		{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: now, LastProbeTime: now},
		{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now, LastProbeTime: now}}}
	// The Job may be gone, or changed by another.
	_, _ = c.Client().BatchV1().Jobs("default").UpdateStatus(c.Context(), job, metav1.UpdateOptions{})
}

// active waits until a CronJob has a number of active Jobs.
func (c cluster) active(name string, want int) *batchv1.CronJob {
	c.Helper()
	var cronJob *batchv1.CronJob
	controllertest.Eventually(c, func() string {
		if cronJob = c.get(name); len(cronJob.Status.Active) != want {
			return fmt.Sprintf("%d active jobs: %+v", want, cronJob.Status)
		}
		return ""
	})
	return cronJob
}

// A Job from its start to its removal from the list of active ones, as a client sees it.
func TestJob(t *testing.T) {
	c := start(t)
	controllertest.RunAt(t, c.Server, c.now, cronjob.New)
	c.create("c", "*/2 * * * *", func(s *batchv1.CronJobSpec) { s.TimeZone = new("Asia/Kolkata") })
	c.clock.Store(int64(3 * time.Minute))
	c.lookAgain("c")
	cronJob := c.active("c", 1)
	jobs := c.jobs()
	if len(jobs) != 1 {
		t.Fatalf("%d jobs", len(jobs))
	}
	job := jobs[0]
	at := cronJob.Status.LastScheduleTime.Time
	if job.Name != "c-"+strconv.FormatInt(at.Unix()/60, 10) || at.Unix()%120 != 0 {
		t.Errorf("%s starts at %v", job.Name, at)
	}
	if stamp := job.Annotations[batchv1.CronJobScheduledTimestampAnnotation]; !strings.HasSuffix(stamp, ":00+05:30") || job.Annotations["note"] != "kept" || job.Labels["app"] != "c" {
		t.Errorf("annotations %v, labels %v", job.Annotations, job.Labels)
	}
	if !metav1.IsControlledBy(&job, cronJob) {
		t.Errorf("owners %+v", job.OwnerReferences)
	}
	if ref := cronJob.Status.Active[0]; ref.UID != job.UID || ref.Name != job.Name || ref.Kind != "Job" || ref.APIVersion != "batch/v1" || ref.Namespace != "default" || ref.ResourceVersion == "" {
		t.Errorf("active %+v", ref)
	}
	c.finish(&job)
	cronJob = c.active("c", 0)
	if cronJob.Status.LastSuccessfulTime == nil {
		t.Error("no time of success")
	}
	controllertest.Eventually(t, func() string {
		list, err := c.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		c.ok(err)
		var got []string
		for _, e := range list.Items {
			got = append(got, fmt.Sprintf("%s %s %s: %s", e.Source.Component, e.Type, e.Reason, e.Message))
		}
		slices.Sort(got)
		want := []string{"cronjob-controller Normal SawCompletedJob: Saw completed job: " + job.Name + ", condition: Complete", "cronjob-controller Normal SuccessfulCreate: Created job " + job.Name}
		if !slices.Equal(got, want) {
			return fmt.Sprintf("the events %q: %q", want, got)
		}
		return ""
	})
}

// A schedule that is changed does not start what it would have started before.
func TestRescheduled(t *testing.T) {
	c := start(t)
	controllertest.RunAt(t, c.Server, c.now, cronjob.New)
	c.create("c", "0 0 1 1 *")
	c.clock.Store(int64(90 * time.Minute))
	c.create("seen", "* * * * *")
	c.lookAgain("seen")
	c.active("seen", 1) // the loop has seen both
	c.patch("c", `{"spec":{"schedule":"*/10 * * * *"}}`)
	c.patch("seen", `{"spec":{"suspend":true}}`)
	c.clock.Add(int64(11 * time.Minute))
	before := c.now().Add(-10 * time.Minute).Truncate(time.Minute)
	c.lookAgain("c")
	if at := c.active("c", 1).Status.LastScheduleTime; at.Time.Before(before) {
		t.Errorf("started what was due at %v, before the change", at)
	}
	if n := len(c.jobs()); n != 2 {
		t.Errorf("%d jobs", n)
	}
}

// Whatever the clock is set to, and wherever the loop is stopped, no start is made twice, though Jobs end and are deleted at once.
func TestClockJumps(t *testing.T) {
	c := start(t)
	random := rand.New(rand.NewPCG(seed.New(t), 1))
	limits := func(s *batchv1.CronJobSpec) {
		s.SuccessfulJobsHistoryLimit = new(int32(0))
	}
	schedules := []string{"0 * * * *", "* * * * *", "@every 7m", "*/20 * * * *"}
	for i, schedule := range schedules {
		c.create(fmt.Sprintf("c%d", i), schedule, limits)
	}
	watching, err := c.Client().BatchV1().Jobs("default").Watch(t.Context(), metav1.ListOptions{})
	c.ok(err)
	var mu sync.Mutex
	created := map[string]int{} // by name, which has the minute
	var observing sync.WaitGroup
	observing.Go(func() {
		for event := range watching.ResultChan() {
			if job, ok := event.Object.(*batchv1.Job); ok && event.Type == watch.Added {
				mu.Lock()
				created[job.Name]++
				mu.Unlock()
				c.finish(job)
			}
		}
	})
	offsets := []time.Duration{time.Hour, -time.Hour, time.Minute, 61 * time.Minute, -59 * time.Minute, 5 * time.Minute}
	c.clock.Store(int64(30 * time.Minute))
	for range 40 {
		stop := controllertest.RunAt(t, c.Server, c.now, cronjob.New)
		for range random.IntN(4) {
			for i := range schedules {
				c.lookAgain(fmt.Sprintf("c%d", i))
			}
			time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond) // the moment at which the loop is stopped, or the clock set
			c.clock.Add(int64(offsets[random.IntN(len(offsets))]))
		}
		stop()
	}
	watching.Stop()
	observing.Wait()
	for name, times := range created {
		if times > 1 {
			t.Errorf("%s was created %d times", name, times)
		}
	}
	if len(created) == 0 { // how many there are depends on the jumps
		t.Error("no starts")
	}
	t.Logf("%d starts", len(created))
}

// The loop was killed after it had created a Job and before it wrote the status, the Job has ended since, and the clock was set back by an hour: when the
// start comes again it is known, though the Job is deleted at once.
func TestKilledBeforeStatus(t *testing.T) {
	c := start(t)
	c.create("c", "0 * * * *", func(s *batchv1.CronJobSpec) { s.SuccessfulJobsHistoryLimit = new(int32(0)) })
	at := time.Now().Add(2 * time.Hour).Truncate(time.Hour)
	job := newCronJob("c", "").Spec.JobTemplate
	job.Annotations[batchv1.CronJobScheduledTimestampAnnotation] = at.UTC().Format(time.RFC3339)
	made, err := c.Client().BatchV1().Jobs("default").Create(t.Context(), &batchv1.Job{Spec: job.Spec, ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d", at.Unix()/60), Annotations: job.Annotations,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c.get("c"), batchv1.SchemeGroupVersion.WithKind("CronJob"))}}}, metav1.CreateOptions{})
	c.ok(err)
	c.finish(made)
	controllertest.RunAt(t, c.Server, c.now, cronjob.New)
	controllertest.Eventually(t, func() string {
		if left := c.jobs(); len(left) > 0 {
			return fmt.Sprintf("the end of %s", left[0].Name)
		}
		return ""
	})
	c.clock.Store(int64(time.Until(at.Add(time.Minute))))
	c.lookAgain("c")
	c.create("other", "0 * * * *")
	c.active("other", 1) // by then the loop has seen both
	if cronJob := c.get("c"); cronJob.Status.LastScheduleTime == nil || !cronJob.Status.LastScheduleTime.Time.Equal(at) || len(cronJob.Status.Active) > 0 {
		t.Errorf("the start was made again: %+v", cronJob.Status)
	}
}

// A thousand CronJobs are due at the same time.
func TestThousand(t *testing.T) {
	if took := thousand(t); took > 20*time.Second {
		t.Errorf("a thousand Jobs took %v", took)
	} else {
		t.Logf("a thousand Jobs took %v", took)
	}
}

// thousand returns how long it takes from the time at which 1,000 CronJobs are due until all their Jobs are there.
func thousand(t testing.TB) time.Duration {
	const count = 1000
	c := start(t, apitest.WithoutGuard())
	for i := range count {
		c.create(fmt.Sprintf("c%d", i), "* * * * *")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watching, err := c.Client().BatchV1().Jobs("default").Watch(ctx, metav1.ListOptions{})
	c.ok(err)
	c.clock.Store(int64(time.Minute))
	began := time.Now()
	stop := controllertest.RunAt(t, c.Server, c.now, cronjob.New)
	defer stop()
	for range count {
		<-watching.ResultChan()
	}
	return time.Since(began)
}

func BenchmarkThousand(b *testing.B) {
	var total time.Duration
	n := 0
	for b.Loop() {
		total += thousand(b)
		n++
	}
	b.ReportMetric(total.Seconds()/float64(n), "s/1000-jobs")
}
