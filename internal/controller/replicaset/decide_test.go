package replicaset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
)

var pods = schema.GroupResource{Resource: "pods"}

func replicaSet(replicas int32) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid", ResourceVersion: "7", Generation: 1},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}, Status: appsv1.ReplicaSetStatus{ObservedGeneration: 1}}
	prepare(rs)
	return rs
}

func observe(rs *appsv1.ReplicaSet, mine ...*corev1.Pod) observed {
	s, ok := fromReplicaSet(rs)
	if !ok {
		panic("a set that is not")
	}
	none := func() []*corev1.Pod { return nil }
	return observed{set: s, pods: mine, strays: none, related: none, taken: func(string) bool { return false }}
}

// texts returns the lines of all actions, including inner ones.
func texts(actions []controller.Action) []string {
	var all []string
	for _, a := range actions {
		if inner := controller.Inner(a); len(inner) > 0 {
			all = append(all, texts(inner)...)
		} else {
			all = append(all, a.String())
		}
	}
	return all
}

// What is reported and done when creating fails depends on the error.
func TestCreateFailures(t *testing.T) {
	terminating := apierrors.NewForbidden(pods, "x", errors.New("being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	quota := apierrors.NewForbidden(pods, "x", errors.New("exceeded quota"))
	for _, c := range []struct {
		name   string
		err    error
		says   string // what an event and the condition contain, if anything
		events int
		again  bool
	}{
		{name: "all went well"},
		{name: "quota", err: errors.Join(quota), says: "exceeded quota", events: 1, again: true},
		{name: "several", err: errors.Join(errors.Join(quota), errors.Join(quota)), says: "exceeded quota", events: 2, again: true},
		{name: "terminating namespace", err: errors.Join(terminating, terminating)},
		{name: "created before", err: apierrors.NewAlreadyExists(pods, "x"), again: true},
		{name: "created before, then quota", err: errors.Join(apierrors.NewAlreadyExists(pods, "x"), quota), says: "exceeded quota", events: 1, again: true},
		{name: "stopped", err: errors.Join(fmt.Errorf("sending: %w", context.Canceled)), again: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			rs := replicaSet(2)
			first := decide(observe(rs), time.Now())
			then := first.Then(c.err)
			events, condition := 0, ""
			for _, a := range then.Actions {
				if strings.Contains(a.String(), "Warning FailedCreate: Error creating: ") && strings.Contains(a.String(), c.says) {
					events++
				}
				if _, sub, obj, ok := controller.Written(a); ok && sub == "status" {
					for _, cond := range obj.(*appsv1.ReplicaSet).Status.Conditions {
						condition = cond.Message
					}
				}
			}
			if events != c.events || len(texts(then.Actions)) < events {
				t.Errorf("%d events, want %d: %q", events, c.events, texts(then.Actions))
			}
			if (condition != "") != (c.says != "") || !strings.Contains(condition, c.says) {
				t.Errorf("the condition says %q", condition)
			}
			if (then.Err != nil) != c.again {
				t.Errorf("error %v", then.Err)
			}
		})
	}
}

// A pod that replaced one that was to be deleted is left alone, without an Event.
func TestDeleteOfAnother(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", Labels: map[string]string{"app": "web"}}}
	d := decide(observe(replicaSet(0), pod), time.Now())
	then := d.Then(errors.Join(apierrors.NewConflict(pods, "a", errors.New("the UID in the precondition does not match"))))
	if then.Err == nil || slices.ContainsFunc(texts(then.Actions), func(s string) bool { return strings.HasPrefix(s, "event") }) {
		t.Errorf("%v, %q", then.Err, texts(then.Actions))
	}
}

// While pods become ready one after the other, the status is written every statusInterval; the last change, and what is more than counts, at once.
func TestStatusInterval(t *testing.T) {
	begin := time.Now()
	pod := func(i int, ready bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Labels: map[string]string{"app": "web"}}}
		if ready {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		return p
	}
	reconcile := func(wait time.Duration, change func(*appsv1.ReplicaSet), ready ...bool) controller.Decision {
		rs := replicaSet(3)
		rs.Status = appsv1.ReplicaSetStatus{Replicas: 3, FullyLabeledReplicas: 3, ReadyReplicas: 1, AvailableReplicas: 1, ObservedGeneration: 1, TerminatingReplicas: new(int32)}
		change(rs)
		var mine []*corev1.Pod
		for i, r := range ready {
			mine = append(mine, pod(i, r))
		}
		o := observe(rs, mine...)
		o.wait = wait
		return decide(o, begin)
	}
	nothing := func(*appsv1.ReplicaSet) {}
	if d := reconcile(statusInterval, nothing, true, true, false); len(d.Actions) != 0 || d.RequeueAfter != statusInterval {
		t.Errorf("one more of several is told at once: %v", d)
	}
	if d := reconcile(0, nothing, true, true, false); len(d.Actions) != 1 {
		t.Errorf("it is not told when it is time: %v", d)
	}
	if d := reconcile(statusInterval, nothing, true, true, true); len(d.Actions) != 1 {
		t.Errorf("the last is not told at once: %v", d)
	}
	if d := reconcile(statusInterval, func(rs *appsv1.ReplicaSet) { rs.Generation = 2 }, true, true, false); len(d.Actions) != 1 {
		t.Errorf("that a change was seen is not told at once: %v", d)
	}
	var p statusLimiter
	key := controller.Key{Name: "web"}
	if w := p.wait(key, begin); w != 0 {
		t.Errorf("%v before anything was told", w)
	}
	p.wrote(key, begin)
	if w := p.wait(key, begin.Add(statusInterval/2)); w != statusInterval/2 {
		t.Errorf("%v after half the time", w)
	}
	p.forget(key)
	if w := p.wait(key, begin); w != 0 {
		t.Errorf("%v of one that is gone", w)
	}
}

func TestBurst(t *testing.T) {
	count := func(d controller.Decision, verb string) (n int) {
		for _, s := range texts(d.Actions) {
			if strings.HasPrefix(s, verb+" Pod") {
				n++
			}
		}
		return n
	}
	if n := count(decide(observe(replicaSet(1200)), time.Now()), "create"); n != burst {
		t.Errorf("%d pods are created at a time", n)
	}
	var many []*corev1.Pod
	for i := range 1200 {
		many = append(many, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Labels: map[string]string{"app": "web"}}})
	}
	if n := count(decide(observe(replicaSet(0), many...), time.Now()), "delete"); n != burst {
		t.Errorf("%d pods are deleted at a time", n)
	}
}

// The sets that are reconciled when a pod changes.
func TestPodKeys(t *testing.T) {
	type on func(*corev1.Pod)
	version := func(v string) on { return func(p *corev1.Pod) { p.ResourceVersion = v } }
	of := func(kind, name string) on {
		return func(p *corev1.Pod) {
			yes := true
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, UID: types.UID(name), Controller: &yes}}
		}
	}
	labelled := func(v string) on { return func(p *corev1.Pod) { p.Labels = map[string]string{"app": v} } }
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	ready := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	placed := func(p *corev1.Pod) { p.Spec.NodeName = "n1" }
	failed := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	pod := func(changes ...on) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n"}}
		for _, change := range changes {
			change(p)
		}
		return p
	}
	for _, c := range []struct {
		name          string
		before, after *corev1.Pod
		want          string
	}{
		{"new", nil, pod(of("ReplicaSet", "a")), "n/a"},
		{"new, of another kind", nil, pod(of("Job", "a")), ""},
		{"new, nobody's", nil, pod(labelled("x")), "n/selecting-x"},
		{"new, nobody's and being deleted", nil, pod(deleted), ""},
		{"became ready", pod(version("1"), of("ReplicaSet", "a")), pod(version("2"), of("ReplicaSet", "a"), ready), "n/a"},
		{"failed", pod(version("1"), of("ReplicaSet", "a")), pod(version("2"), of("ReplicaSet", "a"), failed), "n/a"},
		{"was given a node, which is of no consequence", pod(version("1"), of("ReplicaSet", "a")), pod(version("2"), of("ReplicaSet", "a"), placed), ""},
		{"gone through again", pod(version("1"), of("ReplicaSet", "a")), pod(version("1"), of("ReplicaSet", "a")), ""},
		{"handed over", pod(version("1"), of("ReplicaSet", "a")), pod(version("2"), of("ReplicaSet", "b")), "n/a n/b"},
		{"let go", pod(version("1"), of("ReplicaSet", "a")), pod(version("2"), labelled("x")), "n/a n/selecting-x"},
		{"nobody's, labels changed", pod(version("1"), labelled("x")), pod(version("2"), labelled("y")), "n/selecting-y"},
		{"nobody's, something else changed", pod(version("1"), labelled("x")), pod(version("2"), labelled("x")), ""},
		{"being deleted", pod(version("1"), of("ReplicaSet", "a")), pod(version("2"), of("ReplicaSet", "a"), deleted), "n/a"},
		{"gone", pod(version("1"), of("ReplicaSet", "a")), nil, "n/a"},
		{"gone, nobody's", pod(version("1")), nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after metav1.Object
			if c.before != nil {
				before = c.before
			}
			if c.after != nil {
				after = c.after
			}
			var got []string
			for _, key := range podKeys("ReplicaSet", before, after, func(p metav1.Object) []controller.Key {
				return []controller.Key{{Namespace: p.GetNamespace(), Name: "selecting-" + p.GetLabels()["app"]}}
			}) {
				got = append(got, key.String())
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
