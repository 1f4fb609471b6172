package status

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"skiff/skifftest"
)

// fixture is a writer on an API server, and a pod.
type fixture struct {
	*testing.T
	api    *skifftest.Server
	writer *Writer
	pod    *corev1.Pod
	writes *atomic.Int64 // statuses that reached the API
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	s := skifftest.Start(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{NodeName: "n1", AutomountServiceAccountToken: ptr.To(false),
		Containers: []corev1.Container{{Name: "a", Image: "nginx"}}}}
	pod, err := s.Client().CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var writes atomic.Int64
	w := NewWriter(Options{Client: s.InProcess("kubelet", "system:node:n1", "system:nodes"), Log: slog.New(slog.DiscardHandler),
		Written: func(*corev1.Pod, time.Time) { writes.Add(1) }})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return &fixture{t, s, w, pod, &writes}
}

func (o *fixture) get() *corev1.Pod {
	o.Helper()
	pod, err := o.api.Client().CoreV1().Pods("default").Get(o.Context(), "web", metav1.GetOptions{})
	if err != nil {
		o.Fatal(err)
	}
	return pod
}

func (o *fixture) eventually(what string, is func() bool) {
	o.Helper()
	for deadline := time.Now().Add(15 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			o.Fatalf("it never came about that %s", what)
		}
	}
}

func running(pod *corev1.Pod) *corev1.PodStatus {
	start := metav1.Now().Rfc3339Copy()
	return normalize(pod, &corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBestEffort, StartTime: &start,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: start}}})
}

// Statuses reach the API once, and leave alone what is others'.
func TestWriter(t *testing.T) {
	o := newFixture(t)
	o.pod.Status.Conditions = append(o.pod.Status.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue})
	seen, err := o.api.Client().CoreV1().Pods("default").UpdateStatus(t.Context(), o.pod, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := running(seen)
	o.writer.Set(o.pod, s, true) // though an older version is known here
	o.eventually("the pod runs", func() bool { return o.get().Status.Phase == corev1.PodRunning })
	got := o.get()
	if find(got.Status.Conditions, "example.com/gate") == nil || find(got.Status.Conditions, corev1.PodReady) == nil {
		t.Errorf("conditions %+v", got.Status.Conditions)
	}
	o.writer.Set(got, s.DeepCopy(), true)
	o.writer.Observe(got)
	time.Sleep(50 * time.Millisecond)
	if again := o.get(); again.ResourceVersion != got.ResourceVersion {
		t.Error("a status that says nothing new was written")
	}
	// Somebody meddles.
	got.Status.Phase, got.Status.PodIP = corev1.PodPending, "1.2.3.4"
	meddled, err := o.api.Client().CoreV1().Pods("default").UpdateStatus(t.Context(), got, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o.writer.Observe(meddled)
	o.eventually("it is put right", func() bool { p := o.get(); return p.Status.Phase == corev1.PodRunning && p.Status.PodIP == "" })
}

// A pod that still runs does not end; when it has ended it is deleted, if it is to be.
func TestWriterEnds(t *testing.T) {
	o := newFixture(t)
	s := running(o.pod)
	s.Phase = corev1.PodFailed
	o.writer.Set(o.pod, s, true)
	o.eventually("something is written", func() bool { return o.get().Status.StartTime != nil })
	if p := o.get().Status.Phase; p != corev1.PodPending {
		t.Errorf("a pod that still runs is %s", p)
	}
	o.writer.Finish(o.pod, Finished(o.pod, s))
	o.eventually("it has ended", func() bool { return o.get().Status.Phase == corev1.PodFailed })
	if c := find(o.get().Status.Conditions, corev1.PodReady); c == nil || c.Status != corev1.ConditionFalse {
		t.Errorf("a pod that has ended is ready: %+v", c)
	}
}

func TestWriterDeletes(t *testing.T) {
	o := newFixture(t)
	o.writer.Set(o.pod, running(o.pod), true)
	o.eventually("it runs", func() bool { return o.get().Status.Phase == corev1.PodRunning })
	if err := o.api.Client().CoreV1().Pods("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deleted := o.get()
	o.writer.Observe(deleted)
	o.writer.Finish(deleted, Finished(deleted, running(deleted)))
	o.eventually("it is gone", func() bool {
		_, err := o.api.Client().CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// Another pod of the same name gets nothing of what was meant for the one before.
func TestWriterUID(t *testing.T) {
	o := newFixture(t)
	pods := o.api.Client().CoreV1().Pods("default")
	if err := pods.Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
		t.Fatal(err)
	}
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: o.pod.Spec}
	if _, err := pods.Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	o.writer.Set(o.pod, running(o.pod), true)
	o.eventually("the old one is forgotten", func() bool { _, known := o.writer.Get(o.pod.UID); return !known })
	if p := o.get().Status.Phase; p != corev1.PodPending {
		t.Errorf("the other pod is %s", p)
	}
}

// A status that another is about to follow is written with that one, and by itself if none follows.
func TestWriterSoon(t *testing.T) {
	o := newFixture(t)
	start := time.Now()
	first := running(o.pod)
	first.Phase, first.PodIP = corev1.PodPending, "10.0.0.1"
	o.writer.SetSoon(o.pod, first, true)
	o.writer.Set(o.pod, running(o.pod), true)
	o.eventually("the pod runs", func() bool { return o.get().Status.Phase == corev1.PodRunning })
	one := o.get()
	// A status that waited for longer than setSoonDelay may have been written by itself.
	if n := o.writes.Load(); n > 1 && time.Since(start) < setSoonDelay {
		t.Errorf("two statuses were written %d times, want once", n)
	}
	alone := one.Status.DeepCopy()
	alone.PodIP = "10.0.0.2"
	o.writer.SetSoon(one, alone, true)
	o.eventually("the address is there", func() bool { return o.get().Status.PodIP == "10.0.0.2" })
}
