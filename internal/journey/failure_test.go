package journey

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestFailures(t *testing.T) {
	c := newClock()
	r := New(Options{Capacity: 24, Now: c.Now}) // three failures
	refuse := func(name string, causes ...Cause) {
		r.Failed(Failure{By: ValidatingWebhook, Name: "deny", Verdict: Denied, Message: name, Verb: "create", Resource: "pods", Namespace: "shop", Object: name, Causes: causes})
		c.Advance(time.Second)
	}
	list := func() string {
		var out []string
		for _, f := range r.Failures(func(*Failure) bool { return true }) {
			out = append(out, fmt.Sprintf("%s×%d in %s", f.Object, f.Count, f.Last.Sub(f.First)))
		}
		return strings.Join(out, ", ")
	}
	for _, step := range []struct{ object, want string }{
		{"a", "a×1 in 0s"}, {"b", "b×1 in 0s, a×1 in 0s"}, {"a", "a×2 in 2s, b×1 in 0s"}, {"c", "c×1 in 0s, a×2 in 2s, b×1 in 0s"},
		{"d", "d×1 in 0s, c×1 in 0s, a×2 in 2s"}, // b was the oldest
	} {
		if refuse(step.object); list() != step.want {
			t.Errorf("after %s: %s, want %s", step.object, list(), step.want)
		}
	}
	refuse("e", Cause{"owner", 7})
	if found := r.Failures(func(f *Failure) bool { return f.BecauseOf("owner") }); len(found) != 1 || found[0].Object != "e" {
		t.Errorf("because of the owner: %v", found)
	}
	r.Recovered(ConversionWebhook, "deny")
	if list() != "e×1 in 0s, d×1 in 0s, c×1 in 0s" {
		t.Errorf("something else has recovered: %s", list())
	}
	if r.Recovered(ValidatingWebhook, "deny"); list() != "" {
		t.Errorf("recovered: %s", list())
	}
	refuse(strings.Repeat("ä", 5000))
	if n := len(r.Failures(func(*Failure) bool { return true })[0].Message); n > MaxValue {
		t.Errorf("a message of %d bytes is kept", n)
	}
	var none *Recorder
	none.Failed(Failure{})
	none.Recovered("", "")
	if none.Failures(func(*Failure) bool { return true }) != nil {
		t.Error("no recorder has failures")
	}
}

// Requests that make many calls do not displace the spans of components.
func TestCallsHaveTheirOwnRing(t *testing.T) {
	r := New(Options{Capacity: 16})
	r.PutSpan(Span{SpanContext: NewSpanContext(SpanContext{}), Component: "kubelet", Stage: Start, Start: time.Now(), Causes: []Cause{{"pod", 1}}})
	trace := r.Start("create", "pods", "shop", "web", StartOptions{})
	for range 1000 {
		trace.Span(Span{Component: "kube-apiserver", Stage: ValidatingPolicy, Start: time.Now(), Attributes: []Attribute{{AttributePolicy, "p"}}})
	}
	if all := r.Spans(); len(all) < 2 || all[0].Component != "kubelet" || all[1].Parent != trace.Context().Span {
		t.Errorf("%d spans are left, not that of the kubelet", len(all))
	}
}

// BenchmarkRecovered is what a conversion that succeeds costs when nothing has failed.
func BenchmarkRecovered(b *testing.B) {
	r := New(Options{})
	b.ReportAllocs()
	for b.Loop() {
		r.Recovered(ConversionWebhook, "widgets.example.com")
	}
}

// BenchmarkFailed is what a refusal costs when the table is full.
func BenchmarkFailed(b *testing.B) {
	r := New(Options{})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Failed(Failure{By: ValidatingWebhook, Name: "deny", Object: fmt.Sprint(i)})
	}
}
