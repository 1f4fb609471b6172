package job

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller/owned"
)

// tracked reports whether a pod has the tracking finalizer: it has not been counted yet.
func tracked(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

// surplusAnnotation marks a pod that is to be deleted without being counted, however it ends.
const surplusAnnotation = "job.skiff/surplus"

// surplus returns the marked pods that are still to be deleted.
func surplus(pods []*corev1.Pod) (out []*corev1.Pod) {
	for _, pod := range pods {
		if _, marked := pod.Annotations[surplusAnnotation]; marked && !tracked(pod) && pod.DeletionTimestamp == nil {
			out = append(out, pod)
		}
	}
	return out
}

func countReady(pods []*corev1.Pod) (n int32) {
	for _, pod := range pods {
		if owned.Ready(pod) {
			n++
		}
	}
	return n
}

// failed reports whether a pod counts as failed. A pod that is being deleted does, as it may never report that it failed, unless
// podReplacementPolicy is Failed.
func failed(job *batchv1.Job, pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodFailed {
		return true
	}
	return !replacesOnlyFailed(job) && owned.Terminating(pod)
}

// replacesOnlyFailed reports whether podReplacementPolicy is Failed: pods are replaced when they are terminal, not when their deletion begins.
func replacesOnlyFailed(job *batchv1.Job) bool {
	return job.Spec.PodReplacementPolicy != nil && *job.Spec.PodReplacementPolicy == batchv1.Failed
}

func indexed(job *batchv1.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion
}

func suspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

// noIndex is the index of a pod without a valid completion index.
const noIndex = -1

// indexOf returns a pod's completion index, or noIndex.
func indexOf(pod *corev1.Pod) int {
	i, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || i < 0 {
		return noIndex
	}
	return i
}

// valid reports whether an index is below the Job's completions.
func valid(job *batchv1.Job, index int) bool {
	return index != noIndex && index < int(*job.Spec.Completions)
}

// countIn returns a count in an annotation, 0 if there is none or it is not a number.
func countIn(pod *corev1.Pod, annotation string) int {
	n, err := strconv.Atoi(pod.Annotations[annotation])
	if err != nil || n < 0 || n > math.MaxInt32 {
		return 0
	}
	return n
}

// failures returns how often an index had failed before this pod: failures that count, and ignored ones.
func failures(pod *corev1.Pod) (counted, ignored int) {
	return countIn(pod, batchv1.JobIndexFailureCountAnnotation), countIn(pod, batchv1.JobIndexIgnoredFailureCountAnnotation)
}

// newPod returns a pod of a Job's template, for an index if the Job is indexed.
func newPod(job *batchv1.Job, index int, replaces *corev1.Pod, taken func(string) bool) *corev1.Pod {
	template := job.Spec.Template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, GenerateName: owned.Prefix(job.Name), Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations),
			Finalizers: template.Finalizers, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, jobKind)},
		},
		Spec: template.Spec,
	}
	if !tracked(pod) {
		pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	}
	if indexed(job) {
		number := strconv.Itoa(index)
		tail := "-" + number + "-"
		pod.GenerateName = job.Name[:min(len(job.Name), owned.MaxPrefix-len(tail))] + tail
		pod.Spec.Hostname = job.Name + "-" + number
		set(&pod.Annotations, batchv1.JobCompletionIndexAnnotation, number)
		set(&pod.Labels, batchv1.JobCompletionIndexAnnotation, number)
		addIndexEnv(pod.Spec.InitContainers)
		addIndexEnv(pod.Spec.Containers)
		if job.Spec.BackoffLimitPerIndex != nil {
			counted, ignored := failuresAfter(job, replaces)
			set(&pod.Annotations, batchv1.JobIndexFailureCountAnnotation, strconv.Itoa(counted))
			if ignored > 0 {
				set(&pod.Annotations, batchv1.JobIndexIgnoredFailureCountAnnotation, strconv.Itoa(ignored))
			}
		}
	}
	pod.Name = owned.Name(job, pod.GenerateName, "", taken)
	return pod
}

func set(m *map[string]string, name, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[name] = value
}

// addIndexEnv adds the index to the environment of containers, unless they have a variable of that name.
func addIndexEnv(containers []corev1.Container) {
	const name = "JOB_COMPLETION_INDEX"
	for i := range containers {
		c := &containers[i]
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name }) {
			c.Env = append(c.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']"}}})
		}
	}
}

// failuresAfter returns how often an index has failed, including the pod that is replaced, if any.
func failuresAfter(job *batchv1.Job, replaced *corev1.Pod) (counted, ignored int) {
	if replaced == nil {
		return 0, 0
	}
	counted, ignored = failures(replaced)
	if job.Spec.PodFailurePolicy != nil && !matchFailurePolicy(job.Spec.PodFailurePolicy, replaced).counts {
		return counted, ignored + 1
	}
	return counted + 1, ignored
}

// victims returns at least n of the active pods for deletion: of pods with the same index all but one, those whose index is invalid, and
// then those that have progressed least.
func victims(job *batchv1.Job, pods []*corev1.Pod, n int) []*corev1.Pod {
	left := slices.Clone(pods)
	slices.SortStableFunc(left, leastProgress)
	var out []*corev1.Pod
	if indexed(job) {
		best := map[int]*corev1.Pod{} // the last pod of an index has progressed most
		for _, pod := range left {
			best[indexOf(pod)] = pod
		}
		left = slices.DeleteFunc(left, func(pod *corev1.Pod) bool {
			keep := valid(job, indexOf(pod)) && best[indexOf(pod)] == pod
			if !keep {
				out = append(out, pod)
			}
			return !keep
		})
	}
	return append(out, left[:max(n-len(out), 0)]...)
}

// leastProgress sorts pods first that have progressed least, so that least is lost with them.
func leastProgress(a, b *corev1.Pod) int {
	phases := map[corev1.PodPhase]int{corev1.PodPending: 0, corev1.PodUnknown: 1, corev1.PodRunning: 2}
	c := cmp.Or(yes(a.Spec.NodeName != "")-yes(b.Spec.NodeName != ""), phases[a.Status.Phase]-phases[b.Status.Phase], yes(owned.Ready(a))-yes(owned.Ready(b)))
	if c == 0 && owned.Ready(a) && owned.Ready(b) {
		c = younger(owned.ReadyCondition(a).LastTransitionTime, owned.ReadyCondition(b).LastTransitionTime)
	}
	if c != 0 {
		return c
	}
	restarts, sidecars := maxRestarts(a)
	otherRestarts, otherSidecars := maxRestarts(b)
	return cmp.Or(otherRestarts-restarts, otherSidecars-sidecars, younger(a.CreationTimestamp, b.CreationTimestamp))
}

func yes(b bool) int {
	if b {
		return 1
	}
	return 0
}

// younger sorts times from the latest to the earliest; a zero time comes first.
func younger(a, b metav1.Time) int {
	switch {
	case a.Equal(&b):
		return 0
	case a.IsZero(), !b.IsZero() && a.After(b.Time):
		return -1
	default:
		return 1
	}
}

// maxRestarts returns the most restarts of any container, and of any sidecar.
func maxRestarts(pod *corev1.Pod) (containers, sidecars int) {
	for i := range pod.Status.ContainerStatuses {
		containers = max(containers, int(pod.Status.ContainerStatuses[i].RestartCount))
	}
	for i := range pod.Status.InitContainerStatuses {
		if s := &pod.Status.InitContainerStatuses[i]; isSidecar(pod, s.Name) {
			sidecars = max(sidecars, int(s.RestartCount))
		}
	}
	return containers, sidecars
}

func isSidecar(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
}
