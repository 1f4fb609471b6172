package job_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/job"
	"skiff/test/seed"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newJob(name string, change func(*batchv1.JobSpec)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}
	change(&j.Spec)
	return j
}

func p[T any](v T) *T { return &v }

// fakeNode stands in for the kubelet: it ends every pod once, as end says, and removes deleted ones. It checks that a Job never has more pods than it may.
type fakeNode struct {
	end func(*corev1.Pod) corev1.PodPhase // "" lets it run

	mu       sync.Mutex
	problems []string
	made     map[string]int // pods by completion index
}

func (n *fakeNode) run(t testing.TB, server *apitest.Server, parallelism int) {
	ctx, cancel := context.WithCancel(context.Background())
	c := server.Client().CoreV1().Pods("default")
	w, err := c.Watch(ctx, metav1.ListOptions{})
	ok(t, err)
	n.made = map[string]int{}
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	running.Go(func() {
		active := map[types.UID]bool{}
		for e := range w.ResultChan() {
			pod, isPod := e.Object.(*corev1.Pod)
			if !isPod {
				continue
			}
			n.mu.Lock()
			switch {
			case e.Type == watch.Deleted || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
				delete(active, pod.UID)
			default:
				active[pod.UID] = true
				if len(active) > parallelism {
					n.problems = append(n.problems, fmt.Sprintf("%d pods are active", len(active)))
				}
			}
			if e.Type == watch.Added {
				n.made[pod.Annotations[batchv1.JobCompletionIndexAnnotation]]++
			}
			n.mu.Unlock()
			if e.Type != watch.Added {
				continue
			}
			if phase := n.end(pod); phase != "" {
				pod.Status.Phase = phase
				if _, err := c.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
					t.Errorf("ending %s: %v", pod.Name, err)
				}
			}
		}
	})
}

func (n *fakeNode) check(t testing.TB) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, problem := range n.problems {
		t.Error(problem)
	}
}

func always(phase corev1.PodPhase) func(*corev1.Pod) corev1.PodPhase {
	return func(*corev1.Pod) corev1.PodPhase { return phase }
}

// finish waits until a Job has finished and returns it.
func finish(t testing.TB, server *apitest.Server, name string, as batchv1.JobConditionType) *batchv1.Job {
	t.Helper()
	var j *batchv1.Job
	controllertest.Eventually(t, func() string {
		var err error
		j, err = server.Client().BatchV1().Jobs("default").Get(t.Context(), name, metav1.GetOptions{})
		ok(t, err)
		for _, c := range j.Status.Conditions {
			if c.Type == as && c.Status == corev1.ConditionTrue {
				return ""
			}
		}
		return fmt.Sprintf("not %s: %+v", as, j.Status)
	})
	return j
}

func noFinalizers(t testing.TB, server *apitest.Server) {
	t.Helper()
	pods, err := server.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	ok(t, err)
	for _, pod := range pods.Items {
		if len(pod.Finalizers) > 0 {
			t.Errorf("%s has %v", pod.Name, pod.Finalizers)
		}
	}
}

func expectEvent(t testing.TB, server *apitest.Server, reason, message string) {
	t.Helper()
	controllertest.Eventually(t, func() string {
		events, err := server.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		ok(t, err)
		var seen []string
		for _, e := range events.Items {
			if e.Reason == reason && strings.Contains(e.Message, message) && e.Source.Component == "job-controller" {
				return ""
			}
			seen = append(seen, e.Reason+": "+e.Message)
		}
		return fmt.Sprintf("no event %s: %s among %q", reason, message, seen)
	})
}

func TestParallel(t *testing.T) {
	server := apitest.Start(t)
	n := &fakeNode{end: always(corev1.PodSucceeded)}
	n.run(t, server, 7)
	controllertest.Run(t, server, job.New)
	_, err := server.Client().BatchV1().Jobs("default").Create(t.Context(), newJob("pi", func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = p(int32(20)), p(int32(7)) }), metav1.CreateOptions{})
	ok(t, err)
	j := finish(t, server, "pi", batchv1.JobComplete)
	if s := j.Status; s.Succeeded != 20 || s.Failed != 0 || s.Active != 0 || s.CompletionTime == nil || s.StartTime == nil || *s.Terminating != 0 || *s.Ready != 0 {
		t.Errorf("%+v", s)
	}
	noFinalizers(t, server)
	n.check(t)
	if n.made[""] != 20 {
		t.Errorf("%d pods were made", n.made[""])
	}
	expectEvent(t, server, "Completed", "Job completed")
	expectEvent(t, server, "SuccessfulCreate", "Created pod: pi-")
}

func TestIndexedWithFailures(t *testing.T) {
	server := apitest.Start(t)
	n := &fakeNode{end: func(pod *corev1.Pod) corev1.PodPhase {
		if pod.Annotations[batchv1.JobCompletionIndexAnnotation] == "3" {
			return corev1.PodFailed
		}
		return corev1.PodSucceeded
	}}
	n.run(t, server, 10)
	began := time.Now() // a fast clock, as back-offs are long
	controllertest.RunAt(t, server, func() time.Time { return began.Add(1000 * time.Since(began)) }, job.New)
	_, err := server.Client().BatchV1().Jobs("default").Create(t.Context(), newJob("ix", func(s *batchv1.JobSpec) {
		s.Completions, s.Parallelism, s.CompletionMode, s.BackoffLimitPerIndex = p(int32(10)), p(int32(10)), p(batchv1.IndexedCompletion), p(int32(2))
	}), metav1.CreateOptions{})
	ok(t, err)
	ctx, stop := context.WithCancel(t.Context())
	poke(ctx, t, server, "ix")
	j := finish(t, server, "ix", batchv1.JobFailed)
	stop()
	if s := j.Status; s.Succeeded != 9 || s.CompletedIndexes != "0-2,4-9" || *s.FailedIndexes != "3" || s.Failed != 3 {
		t.Errorf("%+v", s)
	}
	noFinalizers(t, server)
	n.check(t)
	if n.made["3"] != 3 || n.made["4"] != 1 {
		t.Errorf("pods by index: %v", n.made)
	}
	pods, err := server.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: batchv1.JobCompletionIndexAnnotation + "=3"})
	ok(t, err)
	var counts []string
	for _, pod := range pods.Items {
		counts = append(counts, pod.Annotations[batchv1.JobIndexFailureCountAnnotation])
	}
	slices.Sort(counts)
	if !slices.Equal(counts, []string{"0", "1", "2"}) {
		t.Errorf("failure counts %v", counts)
	}
	expectEvent(t, server, "FailedIndexes", "Job has failed indexes")
}

// poke changes a Job all the time: a writer that conflicts, and requeues the Job.
func poke(ctx context.Context, t testing.TB, server *apitest.Server, name string) {
	var poking sync.WaitGroup
	poking.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = server.Client().BatchV1().Jobs("default").Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"poke":"%d"}}}`, i), metav1.PatchOptions{})
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	t.Cleanup(poking.Wait)
}

func TestQuota(t *testing.T) {
	server := apitest.Start(t)
	core := server.Client().CoreV1()
	q, err := core.ResourceQuotas("default").Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("2")}}}, metav1.CreateOptions{})
	ok(t, err)
	// Admission observes the quota a moment after it is written. It has when a quota that is used up refuses a pod.
	q.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: q.Spec.Hard}
	q, err = core.ResourceQuotas("default").UpdateStatus(t.Context(), q, metav1.UpdateOptions{})
	ok(t, err)
	controllertest.Eventually(t, func() string {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		if _, err := core.Pods("default").Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); !apierrors.IsForbidden(err) {
			return fmt.Sprintf("a pod over the quota: %v", err)
		}
		return ""
	})
	q.Status.Used = corev1.ResourceList{"pods": resource.MustParse("0")}
	_, err = core.ResourceQuotas("default").UpdateStatus(t.Context(), q, metav1.UpdateOptions{})
	ok(t, err)
	controllertest.Run(t, server, job.New)
	_, err = server.Client().BatchV1().Jobs("default").Create(t.Context(), newJob("pi", func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = p(int32(5)), p(int32(5)) }), metav1.CreateOptions{})
	ok(t, err)
	controllertest.Eventually(t, func() string {
		j, err := server.Client().BatchV1().Jobs("default").Get(t.Context(), "pi", metav1.GetOptions{})
		ok(t, err)
		if j.Status.Active != 2 {
			return fmt.Sprintf("%d are active", j.Status.Active)
		}
		return ""
	})
	expectEvent(t, server, "FailedCreate", "exceeded quota")
}

// TestDeleted deletes a Job: the finalizers of its pods are removed too.
func TestDeleted(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, job.New)
	_, err := server.Client().BatchV1().Jobs("default").Create(t.Context(), newJob("pi", func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = p(int32(5)), p(int32(5)) }), metav1.CreateOptions{})
	ok(t, err)
	held := func() (held int) {
		pods, err := server.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		ok(t, err)
		for _, pod := range pods.Items {
			if len(pod.Finalizers) > 0 {
				held++
			}
		}
		return held
	}
	controllertest.Eventually(t, func() string {
		if n := held(); n != 5 {
			return fmt.Sprintf("%d pods", n)
		}
		return ""
	})
	ok(t, server.Client().BatchV1().Jobs("default").Delete(t.Context(), "pi", metav1.DeleteOptions{PropagationPolicy: p(metav1.DeletePropagationBackground)}))
	controllertest.Eventually(t, func() string {
		if n := held(); n > 0 {
			return fmt.Sprintf("%d pods are held", n)
		}
		return ""
	})
}

// TestSuspend suspends a running Job, and resumes it.
func TestSuspend(t *testing.T) {
	server := apitest.Start(t)
	jobs := server.Client().BatchV1().Jobs("default")
	n := &fakeNode{end: always("")}
	n.run(t, server, 3)
	controllertest.Run(t, server, job.New)
	_, err := jobs.Create(t.Context(), newJob("pi", func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = p(int32(3)), p(int32(3)) }), metav1.CreateOptions{})
	ok(t, err)
	expect := func(active int32, suspended corev1.ConditionStatus) {
		t.Helper()
		controllertest.Eventually(t, func() string {
			j, err := jobs.Get(t.Context(), "pi", metav1.GetOptions{})
			ok(t, err)
			is := corev1.ConditionUnknown
			for _, c := range j.Status.Conditions {
				if c.Type == batchv1.JobSuspended {
					is = c.Status
				}
			}
			if j.Status.Active != active || is != suspended || (j.Status.StartTime == nil) != (suspended == corev1.ConditionTrue) {
				return fmt.Sprintf("%+v", j.Status)
			}
			return ""
		})
	}
	expect(3, corev1.ConditionUnknown)
	suspend := func(on bool) {
		t.Helper()
		_, err := jobs.Patch(t.Context(), "pi", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"suspend":%v}}`, on), metav1.PatchOptions{})
		ok(t, err)
	}
	suspend(true)
	expect(0, corev1.ConditionTrue)
	expectEvent(t, server, "Suspended", "Job suspended")
	suspend(false)
	expect(3, corev1.ConditionFalse)
	expectEvent(t, server, "Resumed", "Job resumed")
	n.check(t)
	j, err := jobs.Get(t.Context(), "pi", metav1.GetOptions{})
	ok(t, err)
	if j.Status.Failed != 0 {
		t.Errorf("suspending counted as %d failures", j.Status.Failed)
	}
}

// TestFaults runs Jobs while the loop is stopped and started at random, terminal pods are deleted, and another client writes the Job. Every success is
// counted once, and there are never too many pods.
func TestFaults(t *testing.T) {
	seed := seed.New(t)
	for _, mode := range []batchv1.CompletionMode{batchv1.NonIndexedCompletion, batchv1.IndexedCompletion} {
		t.Run(string(mode), func(t *testing.T) {
			server := apitest.Start(t)
			random := rand.New(rand.NewPCG(seed, 1))
			ctx, done := context.WithCancel(t.Context())
			const completions, parallelism = 40, 8
			n := &fakeNode{end: always(corev1.PodSucceeded)}
			n.run(t, server, parallelism)
			_, err := server.Client().BatchV1().Jobs("default").Create(ctx, newJob("pi", func(s *batchv1.JobSpec) {
				s.Completions, s.Parallelism, s.CompletionMode = p(int32(completions)), p(int32(parallelism)), p(mode)
			}), metav1.CreateOptions{})
			ok(t, err)
			poke(ctx, t, server, "pi")
			var deleting sync.WaitGroup
			deleting.Go(func() { // pods that have ended, at once
				w, err := server.Client().CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{})
				if err != nil {
					return
				}
				for e := range w.ResultChan() {
					if pod, isPod := e.Object.(*corev1.Pod); isPod && pod.Status.Phase == corev1.PodSucceeded && pod.DeletionTimestamp == nil {
						_ = server.Client().CoreV1().Pods("default").Delete(ctx, pod.Name, metav1.DeleteOptions{})
					}
				}
			})
			finished := func() bool {
				j, err := server.Client().BatchV1().Jobs("default").Get(t.Context(), "pi", metav1.GetOptions{})
				ok(t, err)
				return j.Status.CompletionTime != nil
			}
			stops := 0
			for deadline := time.Now().Add(20 * time.Second); !finished() && time.Now().Before(deadline); stops++ {
				stop := controllertest.Run(t, server, job.New)
				time.Sleep(100*time.Millisecond + time.Duration(random.IntN(50))*time.Millisecond)
				stop()
			}
			controllertest.Run(t, server, job.New)
			j := finish(t, server, "pi", batchv1.JobComplete)
			done()
			deleting.Wait()
			t.Logf("stopped %d times", stops)
			if s := j.Status; s.Succeeded != completions || s.Failed != 0 || s.Active != 0 {
				t.Errorf("%+v", s)
			}
			n.check(t)
			made := 0
			for _, count := range n.made {
				made += count
			}
			if made != completions {
				t.Errorf("%d pods were made", made)
			}
			noFinalizers(t, server)
		})
	}
}
