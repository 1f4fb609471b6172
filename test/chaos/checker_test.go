//go:build linux

package chaos

import (
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// lag bounds how far a component's cache may be behind the state at the time of its request, or ahead by its own inflight requests.
const lag = 2 * time.Second

// checker goes through all events in order, and reports what should not have happened.
type checker struct {
	complain func(format string, args ...any)
	// foreign are pods that somebody else than the scheduler put on a node.
	foreign map[types.UID]bool

	now   view
	past  []pastView // within the lag
	alive map[types.UID]*corev1.Pod
	sets  map[types.UID]*versioned[*appsv1.ReplicaSet]
	jobs  map[types.UID]*versioned[*batchv1.Job]

	pods, bindings, late, setsMade int            // late: right only by what could be known
	made                           map[string]int // pods of each owner, by namespace and name
}

// pastView is a view that was valid until a time.
type pastView struct {
	view
	until time.Time
}

// versioned is an object with its versions within the lag.
type versioned[T any] struct {
	versions []T
	until    []time.Time // of each but the last
	gone     bool
}

func newChecker(complain func(format string, args ...any)) *checker {
	return &checker{complain: complain, made: map[string]int{}, foreign: map[types.UID]bool{}, now: view{map[string]*corev1.Node{}, map[types.UID]*corev1.Pod{}}, alive: map[types.UID]*corev1.Pod{},
		sets: map[types.UID]*versioned[*appsv1.ReplicaSet]{}, jobs: map[types.UID]*versioned[*batchv1.Job]{}}
}

// replay checks the next part of the event log.
func (j *checker) replay(log []watchEvent) {
	for i, h := range log {
		j.past = slices.DeleteFunc(j.past, func(m pastView) bool { return h.at.Sub(m.until) > lag })
		switch object := h.object.(type) {
		case *corev1.Node:
			j.move(h.at, func(v *view) {
				v.nodes = maps.Clone(v.nodes)
				if v.nodes[object.Name] = object; h.what == watch.Deleted {
					delete(v.nodes, object.Name)
				}
			})
		case *appsv1.ReplicaSet:
			if h.what == watch.Added {
				j.setMade(object)
			}
			keep(j.sets, object.UID, object, h)
		case *batchv1.Job:
			keep(j.jobs, object.UID, object, h)
		case *corev1.Pod:
			j.pod(object, h, log[i+1:])
		}
	}
}

func keep[T any](all map[types.UID]*versioned[T], uid types.UID, object T, h watchEvent) {
	k := all[uid]
	if k == nil {
		k = &versioned[T]{}
		all[uid] = k
	}
	if len(k.versions) > 0 {
		k.until = append(k.until, h.at)
	}
	k.versions = append(k.versions, object)
	for len(k.until) > 0 && h.at.Sub(k.until[0]) > lag {
		k.versions, k.until = k.versions[1:], k.until[1:]
	}
	k.gone = h.what == watch.Deleted
}

// lately returns the versions that an object had within the lag.
func (k *versioned[T]) lately(at time.Time) []T {
	var out []T
	for i, version := range k.versions {
		if i == len(k.until) || at.Sub(k.until[i]) <= lag {
			out = append(out, version)
		}
	}
	return out
}

// move changes the current view and keeps the one before.
func (j *checker) move(at time.Time, change func(*view)) {
	j.past = append(j.past, pastView{j.now, at})
	change(&j.now)
}

// setMade checks a new ReplicaSet: a Deployment has one for each template.
func (j *checker) setMade(set *appsv1.ReplicaSet) {
	j.setsMade++
	owner := metav1.GetControllerOf(set)
	if owner == nil {
		return
	}
	for _, k := range j.sets {
		other := k.versions[len(k.versions)-1]
		if by := metav1.GetControllerOf(other); !k.gone && by != nil && by.UID == owner.UID && other.UID != set.UID && equality.Semantic.DeepEqual(template(other), template(set)) {
			j.complain("%s/%s and %s are for the same template of %s", set.Namespace, set.Name, other.Name, owner.Name)
		}
	}
}

func template(set *appsv1.ReplicaSet) corev1.PodTemplateSpec {
	t := *set.Spec.Template.DeepCopy()
	delete(t.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return t
}

func (j *checker) pod(pod *corev1.Pod, h watchEvent, after []watchEvent) {
	before := j.alive[pod.UID]
	switch {
	case h.what == watch.Added:
		j.pods++
		j.podMade(pod, h)
	case before != nil && before.Spec.NodeName == "" && pod.Spec.NodeName != "":
		j.bound(pod, h, after)
	case before != nil && before.Spec.NodeName != pod.Spec.NodeName:
		j.complain("%s/%s was bound twice, to %s and to %s", pod.Namespace, pod.Name, before.Spec.NodeName, pod.Spec.NodeName)
	}
	if j.alive[pod.UID] = pod; h.what == watch.Deleted {
		delete(j.alive, pod.UID)
	}
	there := h.what != watch.Deleted && pod.Spec.NodeName != "" && !over(pod)
	if before := j.now.pods[pod.UID]; there || before != nil {
		j.move(h.at, func(v *view) {
			v.pods = maps.Clone(v.pods)
			if v.pods[pod.UID] = pod; !there {
				delete(v.pods, pod.UID)
			}
		})
	}
}

func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// bound checks the binding of a pod. Resources, ports and anti-affinity must be right at the time of binding: what the scheduler observes late, like the end of a
// pod, only makes it more careful. The other rules may hold for an earlier view that it knew.
func (j *checker) bound(pod *corev1.Pod, h watchEvent, after []watchEvent) {
	if j.foreign[pod.UID] {
		return
	}
	j.bindings++
	refusals := j.now.refuses(pod, pod.Spec.NodeName)
	if len(refusals) == 0 {
		return
	}
	for _, r := range refusals {
		if r.rule == room || r.rule == ports || r.rule == antiAffinity {
			j.complain("%s/%s came to %s against its %s: %s", pod.Namespace, pod.Name, pod.Spec.NodeName, r.rule, r.why)
			return
		}
	}
	if j.explained(pod, h, after) {
		j.late++
		return
	}
	j.complain("%s/%s came to %s against its %s: %s; within %v it was never different", pod.Namespace, pod.Name, pod.Spec.NodeName, refusals[0].rule, refusals[0].why, lag)
}

// explained reports whether a binding was right in a view that the scheduler may have had: one within the lag, with the pods that it has itself bound
// since, and perhaps with its inflight bindings.
func (j *checker) explained(pod *corev1.Pod, h watchEvent, after []watchEvent) bool {
	var coming []*corev1.Pod
	for _, next := range after {
		if p, ok := next.object.(*corev1.Pod); ok && next.at.Sub(h.at) <= lag && next.what == watch.Modified && p.Spec.NodeName != "" && p.UID != pod.UID && j.alive[p.UID] != nil && j.alive[p.UID].Spec.NodeName == "" &&
			!slices.ContainsFunc(coming, func(c *corev1.Pod) bool { return c.UID == p.UID }) {
			coming = append(coming, p)
		}
	}
	views := []view{j.now}
	for _, m := range slices.Backward(j.past) {
		v := view{m.nodes, maps.Clone(m.pods)}
		for uid, p := range j.now.pods {
			if v.pods[uid] == nil {
				v.pods[uid] = p
			}
		}
		views = append(views, v)
	}
	for _, v := range views {
		for i := 0; ; i++ {
			if len(v.refuses(pod, pod.Spec.NodeName)) == 0 {
				return true
			}
			if i == len(coming) {
				break
			}
			if next := coming[i]; len(v.refuses(next, next.Spec.NodeName)) == 0 { // else it was not put there before this one was
				v = v.with(next)
			}
		}
	}
	return false
}

// podMade checks that a new pod was needed.
func (j *checker) podMade(pod *corev1.Pod, h watchEvent) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return
	}
	j.made[pod.Namespace+"/"+owner.Name]++
	var active, succeeded []*corev1.Pod
	for _, p := range j.alive {
		if by := metav1.GetControllerOf(p); by == nil || by.UID != owner.UID || p.UID == pod.UID {
			continue
		}
		switch {
		case p.Status.Phase == corev1.PodSucceeded:
			succeeded = append(succeeded, p)
		case p.Status.Phase != corev1.PodFailed && p.DeletionTimestamp == nil:
			active = append(active, p)
		}
	}
	switch owner.Kind {
	case "ReplicaSet":
		j.podOfSet(pod, owner, len(active)+1, h)
	case "Job":
		j.podOfJob(pod, owner, active, succeeded, h)
	}
}

func (j *checker) podOfSet(pod *corev1.Pod, owner *metav1.OwnerReference, active int, h watchEvent) {
	k := j.sets[owner.UID]
	if k == nil {
		j.complain("%s/%s was made for a ReplicaSet that never was", pod.Namespace, pod.Name)
		return
	}
	wanted := int32(0)
	for _, set := range k.lately(h.at) {
		wanted = max(wanted, *set.Spec.Replicas)
	}
	if active > int(wanted) {
		j.complain("%s/%s is number %d of %d of its ReplicaSet", pod.Namespace, pod.Name, active, wanted)
	}
}

func (j *checker) podOfJob(pod *corev1.Pod, owner *metav1.OwnerReference, active, succeeded []*corev1.Pod, h watchEvent) {
	k := j.jobs[owner.UID]
	if k == nil {
		j.complain("%s/%s was made for a Job that never was", pod.Namespace, pod.Name)
		return
	}
	why := ""
	for _, job := range k.lately(h.at) {
		if why = needless(job, pod, active, succeeded); why == "" {
			return
		}
	}
	j.complain("%s/%s was made needlessly: %s", pod.Namespace, pod.Name, why)
}

// needless returns why a Job needs no further pod; empty if it does.
func needless(job *batchv1.Job, pod *corev1.Pod, active, succeeded []*corev1.Pod) string {
	const index = batchv1.JobCompletionIndexAnnotation
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return "the Job has ended"
		}
	}
	if len(active) >= int(*job.Spec.Parallelism) {
		return fmt.Sprintf("%d run already", len(active))
	}
	if done := max(len(succeeded), int(job.Status.Succeeded)); job.Spec.Completions != nil && len(active)+done >= int(*job.Spec.Completions) {
		return fmt.Sprintf("%d run and %d are done of %d", len(active), done, *job.Spec.Completions)
	}
	if job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion {
		for _, p := range append(active, succeeded...) {
			if p.Annotations[index] == pod.Annotations[index] {
				return "index " + p.Annotations[index] + " is taken by " + p.Name
			}
		}
	}
	return ""
}
