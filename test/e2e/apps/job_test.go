package apps

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// job creates a Job, whose pods run until end is called.
func (c cluster) job(changes ...func(*batchv1.Job)) *batchv1.Job {
	c.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: web()}, Spec: batchv1.JobSpec{Template: template("worker", runsFor, "1h")}}
	j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	for _, change := range changes {
		change(j)
	}
	return must[*batchv1.Job](c)(c.api.BatchV1().Jobs("default").Create(c.ctx, j, metav1.CreateOptions{}))
}

// sized returns a change that sets parallelism and completions of a Job.
func sized(parallelism, completions int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.Completions = &parallelism, &completions }
}

func indexed(j *batchv1.Job) { j.Spec.CompletionMode = new(batchv1.IndexedCompletion) }

// end makes the containers of a pod exit with a code.
func (c cluster) end(pod corev1.Pod, code int) {
	c.Helper()
	p := patch(object{"metadata": object{"annotations": object{runsFor: "0s", exitCode: strconv.Itoa(code)}}})
	_, err := c.api.CoreV1().Pods("default").Patch(c.ctx, pod.Name, types.MergePatchType, p, metav1.PatchOptions{})
	c.ok(err)
}

// workers waits until there is a ready pod for each of these indexes, and returns the ready pods by index.
func (c cluster) workers(want ...int) map[int]corev1.Pod {
	c.Helper()
	found := map[int]corev1.Pod{}
	c.eventually(func() string {
		clear(found)
		for _, p := range c.pods() {
			if i, err := strconv.Atoi(p.Annotations[batchv1.JobCompletionIndexAnnotation]); err == nil && isReady(&p) {
				found[i] = p
			}
		}
		for _, i := range want {
			if _, ok := found[i]; !ok {
				return fmt.Sprintf("a pod for index %d: %d others", i, len(found))
			}
		}
		return ""
	})
	return found
}

// finished waits until the Job has a condition.
func (c cluster) finished(as batchv1.JobConditionType, reason string) batchv1.JobStatus {
	c.Helper()
	var j *batchv1.Job
	c.eventually(func() string {
		j = must[*batchv1.Job](c)(c.api.BatchV1().Jobs("default").Get(c.ctx, "web", metav1.GetOptions{}))
		if !slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == as && c.Status == corev1.ConditionTrue && c.Reason == reason
		}) {
			return fmt.Sprintf("%s because of %s: %+v", as, reason, j.Status)
		}
		return ""
	})
	return j.Status
}

func TestIndexedJob(t *testing.T) {
	c := start(t)
	c.job(sized(2, 4), indexed, func(j *batchv1.Job) { j.Spec.Template.Annotations[runsFor] = "0s" })
	if s := c.finished(batchv1.JobComplete, batchv1.JobReasonCompletionsReached); s.Succeeded != 4 || s.CompletedIndexes != "0-3" {
		t.Errorf("%+v", s)
	}
	var indexes []string
	for _, p := range c.pods() {
		index := p.Annotations[batchv1.JobCompletionIndexAnnotation]
		indexes = append(indexes, index)
		env := p.Spec.Containers[0].Env
		i := slices.IndexFunc(env, func(e corev1.EnvVar) bool { return e.Name == "JOB_COMPLETION_INDEX" })
		if i < 0 || env[i].ValueFrom.FieldRef.FieldPath != "metadata.labels['batch.kubernetes.io/job-completion-index']" || p.Labels[batchv1.JobCompletionIndexAnnotation] != index {
			t.Errorf("%s is not told its index: %v, %v", p.Name, env, p.Labels)
		}
		if p.Spec.Hostname != "web-"+index {
			t.Errorf("%s is called %s", p.Name, p.Spec.Hostname)
		}
	}
	if slices.Sort(indexes); !slices.Equal(indexes, []string{"0", "1", "2", "3"}) {
		t.Errorf("pods for %v", indexes)
	}
}

func TestJobFailsOnExitCode(t *testing.T) {
	c := start(t)
	c.job(func(j *batchv1.Job) {
		j.Spec.BackoffLimit = new(int32(100))
		j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionFailJob,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{ContainerName: new("c"), Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{1}}}}}
	})
	c.end(c.running(1, "worker")[0], 1)
	if s := c.finished(batchv1.JobFailed, batchv1.JobReasonPodFailurePolicy); s.Failed != 1 {
		t.Errorf("%+v", s)
	}
}

func TestJobIgnoresDisruptions(t *testing.T) {
	c := start(t)
	c.job(sized(2, 2), indexed, func(j *batchv1.Job) {
		j.Spec.BackoffLimit = new(int32(0))
		j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}}}}
		j.Spec.Template.Annotations[exitCode] = "1" // killed pods fail
	})
	first := c.workers(0, 1)
	for _, p := range first {
		c.ok(c.api.CoreV1().Pods("default").EvictV1(c.ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name}}))
	}
	c.eventually(func() string {
		again := c.workers(0, 1)
		if again[0].UID == first[0].UID || again[1].UID == first[1].UID {
			return "both pods replaced"
		}
		return ""
	})
	for _, p := range c.workers(0, 1) {
		c.end(p, 0)
	}
	if s := c.finished(batchv1.JobComplete, batchv1.JobReasonCompletionsReached); s.Failed != 0 || s.Succeeded != 2 {
		t.Errorf("%+v", s)
	}
}

func TestSuccessPolicy(t *testing.T) {
	policy := func(rule batchv1.SuccessPolicyRule) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{rule}}
		}
	}
	for _, test := range []struct {
		name      string
		rule      batchv1.SuccessPolicyRule
		size      func(*batchv1.Job)
		succeed   []int
		completed string
	}{
		{"all indexes", batchv1.SuccessPolicyRule{SucceededCount: new(int32(2))}, sized(2, 2), []int{0, 1}, "0,1"},
		{"these indexes", batchv1.SuccessPolicyRule{SucceededIndexes: new("0")}, sized(2, 2), []int{0}, "0"},
		{"so many of them", batchv1.SuccessPolicyRule{SucceededIndexes: new("0-4"), SucceededCount: new(int32(1))}, sized(3, 5), []int{2}, "2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := start(t)
			c.job(test.size, indexed, policy(test.rule))
			pods := c.workers(test.succeed...)
			for _, i := range test.succeed {
				c.end(pods[i], 0)
			}
			c.finished(batchv1.JobSuccessCriteriaMet, batchv1.JobReasonSuccessPolicy)
			s := c.finished(batchv1.JobComplete, batchv1.JobReasonSuccessPolicy)
			if s.CompletedIndexes != test.completed || s.Active != 0 || s.Ready == nil || *s.Ready != 0 || s.Terminating == nil || *s.Terminating != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestMaxFailedIndexes(t *testing.T) {
	c := start(t)
	c.job(sized(1, 4), indexed, func(j *batchv1.Job) {
		j.Spec.BackoffLimitPerIndex, j.Spec.MaxFailedIndexes = new(int32(0)), new(int32(0))
	})
	c.end(c.workers(0)[0], 1)
	if s := c.finished(batchv1.JobFailed, batchv1.JobReasonMaxFailedIndexesExceeded); s.Failed != 1 || s.FailedIndexes == nil || *s.FailedIndexes != "0" {
		t.Errorf("%+v", s)
	}
}

func TestFailIndex(t *testing.T) {
	c := start(t)
	c.job(sized(2, 2), indexed, func(j *batchv1.Job) {
		j.Spec.BackoffLimitPerIndex = new(int32(1))
		j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionFailIndex,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpNotIn, Values: []int32{0}}}}}
	})
	pods := c.workers(0, 1)
	c.end(pods[0], 1)
	c.end(pods[1], 0)
	if s := c.finished(batchv1.JobFailed, batchv1.JobReasonFailedIndexes); s.Failed != 1 || s.Succeeded != 1 || *s.FailedIndexes != "0" || s.CompletedIndexes != "1" {
		t.Errorf("%+v", s)
	}
}

func TestJobWithLocalRestarts(t *testing.T) {
	c := start(t)
	c.job(sized(2, 4), func(j *batchv1.Job) {
		j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		j.Spec.Template.Annotations[runsFor], j.Spec.Template.Annotations[exitCode] = "200ms", "1"
	})
	restarted := map[string]bool{}
	c.eventually(func() string {
		for _, p := range c.pods() {
			if s := p.Status.ContainerStatuses; len(s) > 0 && s[0].RestartCount > 0 && !restarted[p.Name] {
				restarted[p.Name] = true
				c.end(p, 0) // this time it succeeds
			}
		}
		if len(restarted) < 4 {
			return fmt.Sprintf("four pods to fail once: %v", restarted)
		}
		return ""
	})
	if s := c.finished(batchv1.JobComplete, batchv1.JobReasonCompletionsReached); s.Succeeded != 4 || s.Failed != 0 {
		t.Errorf("%+v", s)
	}
}

func TestJobIsDeleted(t *testing.T) {
	c := start(t)
	c.job(sized(2, 4))
	c.running(2, "worker")
	c.ok(c.api.BatchV1().Jobs("default").Delete(c.ctx, "web", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}))
	c.eventually(func() string {
		if _, err := c.api.BatchV1().Jobs("default").Get(c.ctx, "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the Job to go: %v", err)
		}
		return ""
	})
	c.running(0, "")
}

func TestJobAdoptsAndReleases(t *testing.T) {
	c := start(t)
	j := c.job(sized(2, 4))
	pods := c.running(2, "worker")
	orphan := patch(object{"metadata": object{"ownerReferences": nil}})
	_, err := c.api.CoreV1().Pods("default").Patch(c.ctx, pods[0].Name, types.MergePatchType, orphan, metav1.PatchOptions{})
	c.ok(err)
	c.adopted(pods[0].Name, j.UID)
	strip := patch(object{"metadata": object{"labels": object{"app": "other", batchv1.ControllerUidLabel: nil, batchv1.JobNameLabel: nil, "controller-uid": nil, "job-name": nil}}})
	_, err = c.api.CoreV1().Pods("default").Patch(c.ctx, pods[0].Name, types.MergePatchType, strip, metav1.PatchOptions{})
	c.ok(err)
	c.released(pods[0].Name)
}

func TestJobLifecycle(t *testing.T) {
	c := start(t)
	jobs := c.api.BatchV1().Jobs("default")
	c.job(sized(2, 4), func(j *batchv1.Job) { j.Spec.Suspend = new(true) })
	got := must[*batchv1.Job](c)(jobs.Patch(c.ctx, "web", types.StrategicMergePatchType, patch(object{"metadata": object{"labels": object{"patched": "yes"}}}), metav1.PatchOptions{}))
	if got.Labels["patched"] != "yes" {
		t.Errorf("patched: %v", got.Labels)
	}
	c.finished(batchv1.JobSuspended, "JobSuspended")
	if pods := c.pods(); len(pods) > 0 {
		t.Errorf("it is suspended, but has %v", names(pods))
	}
	c.eventually(func() string {
		j := must[*batchv1.Job](c)(jobs.Get(c.ctx, "web", metav1.GetOptions{}))
		j.Spec.Suspend = new(false)
		j.Annotations = map[string]string{"updated": "yes"}
		if _, err := jobs.Update(c.ctx, j, metav1.UpdateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	c.running(2, "worker")
	list := must[*batchv1.JobList](c)(c.api.BatchV1().Jobs("").List(c.ctx, metav1.ListOptions{LabelSelector: "patched=yes"}))
	if len(list.Items) != 1 || list.Items[0].Annotations["updated"] != "yes" {
		t.Errorf("found %v", list.Items)
	}
	c.ok(jobs.DeleteCollection(c.ctx, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}, metav1.ListOptions{LabelSelector: "patched=yes"}))
	if _, err := jobs.Get(c.ctx, "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
	c.running(0, "")
}
