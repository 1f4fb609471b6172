package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver"
	"skiff/internal/apitest"
	"skiff/internal/client"
	"skiff/internal/journey"
)

// eventuallySpans waits until the recorder has a number of spans and returns them by stage.
func eventuallySpans(t *testing.T, r *journey.Recorder, want int) map[string]journey.Span {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		if all := r.Spans(); len(all) >= want {
			byStage := map[string]journey.Span{}
			for _, s := range all {
				byStage[s.Stage] = s
			}
			return byStage
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d spans, want %d", len(r.Spans()), want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// The spans of a component are recorded in the server with their user, in process and over HTTPS alike; requests and child spans
// have the span they were made within as their parent.
func TestSpans(t *testing.T) {
	for name, reach := range map[string]func(*apitest.Server) *client.Client{
		"in process": func(s *apitest.Server) *client.Client {
			return s.InProcess("kubelet", "system:node:one", "system:nodes")
		},
		"over HTTPS": func(s *apitest.Server) *client.Client { return s.Remote("kubelet", "system:node:one", "system:nodes") },
	} {
		t.Run(name, func(t *testing.T) {
			recorder := journey.New(journey.Options{})
			s := apitest.Start(t, apitest.WithServer(func(o *apiserver.Options) { o.Journey = recorder }))
			pod, err := s.Client().CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"},
				Spec: corev1.PodSpec{NodeName: "one", Containers: []corev1.Container{{Name: "web", Image: "nginx"}}}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			c := reach(s)
			span := c.Begin(pod, journey.Sandbox)
			span.Set("handler", "runc")
			span.Record(journey.CNI, time.Now().Add(-time.Second), time.Now(), errors.New("no addresses left"), journey.Attribute{Key: "plugin", Value: "ptp"})
			inner := c.BeginIn(span.In(t.Context()), "inner")
			pod.Status.Phase = corev1.PodRunning
			if _, err := c.Kubernetes().CoreV1().Pods("default").UpdateStatus(inner.In(t.Context()), pod, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			inner.End(nil)
			span.End(nil)
			span.End(errors.New("too late"))
			span.Set("too", "late")

			got := eventuallySpans(t, recorder, 3)
			sandbox, cni, in := got[journey.Sandbox], got[journey.CNI], got["inner"]
			if sandbox.Source != "system:node:one" || sandbox.Component != "kubelet" || sandbox.Error != "" || len(sandbox.Attributes) != 1 ||
				sandbox.Causes[0].UID != string(pod.UID) || sandbox.Duration <= 0 {
				t.Errorf("sandbox: %+v", sandbox)
			}
			if cni.Parent != sandbox.SpanContext.Span || cni.Error != "no addresses left" || cni.Duration.Round(100*time.Millisecond) != time.Second || cni.Trace != sandbox.Trace {
				t.Errorf("cni: %+v", cni)
			}
			if in.Parent != sandbox.SpanContext.Span || len(in.Causes) != 1 {
				t.Errorf("inner: %+v", in)
			}
			for _, v := range recorder.Find(string(pod.UID)) {
				if v.Resource == "pods/status" {
					if v.Parent != in.SpanContext.Span || v.User != "system:node:one" || v.Name != "web" {
						t.Errorf("the request: %+v", v)
					}
					return
				}
			}
			t.Error("the request is not remembered")
		})
	}
}

// Spans of a user who may not send any are dropped without an error.
func TestSpansOfStrangers(t *testing.T) {
	recorder := journey.New(journey.Options{})
	s := apitest.Start(t, apitest.WithServer(func(o *apiserver.Options) { o.Journey = recorder }))
	namespace, err := s.Client().CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stranger, scheduler := s.Remote("evil", "stranger"), s.Remote("kube-scheduler", "system:kube-scheduler")
	stranger.Begin(namespace, "forged").End(nil)
	time.Sleep(500 * time.Millisecond) // its batch has gone
	scheduler.Begin(namespace, "true").End(nil)
	if got := eventuallySpans(t, recorder, 1); len(got) != 1 || got["true"].Source != "system:kube-scheduler" {
		t.Errorf("%+v", got)
	}
}

func TestNoSpans(t *testing.T) {
	var none *client.Client
	span := none.Begin(&corev1.Pod{}, "x")
	span.Set("a", 1)
	span.Begin("y").End(nil)
	span.Record("z", time.Now(), time.Now(), nil)
	if ctx := span.In(t.Context()); ctx != t.Context() {
		t.Error("a span that is none has a context")
	}
	span.End(nil)
	none.Record(&corev1.Pod{}, "x", time.Now(), time.Now(), nil)
	if none.BeginIn(context.Background(), "x") != nil {
		t.Error("a client that is none has spans")
	}
}
