package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/journey"
)

// A Span is a piece of a component's work on an object, with a start and an end, that is shown in the object's journey:
//
//	span := c.Begin(pod, journey.Sandbox)           // the pod as observed: its uid and resourceVersion are the cause
//	id, err := runtime.RunPodSandbox(span.In(ctx))  // requests made with this context are children of the span
//	span.Set("handler", "runc")                     // optional; bounded, longer values are cut
//	span.End(err)                                   // records it; nil is success
//
// span.Begin(stage) begins a child span. span.Record and c.Record record work that is only known afterwards, because another program did it. The
// stages that are explained to people have constants in package journey (Pickup, Volumes, Sandbox, CNI, Image, Create, Start, Probe,
// Ready, ...); span.Set("container", name) says which container it is.
//
// No method blocks or fails: spans are kept in memory in the server's process, or sent to it in batches, and are dropped if there are
// too many. All methods can be called on a nil Span, and Begin on a nil Client, from any goroutine.
type Span struct {
	client  *Client
	context journey.SpanContext
	causes  []journey.Cause

	mu    sync.Mutex
	span  journey.Span
	ended bool // whether the span was recorded
}

// Begin starts a span of work done for an object, or because of this version of it. It is recorded when it ends.
func (c *Client) Begin(about metav1.Object, stage string) *Span {
	return c.begin(stage, journey.SpanContext{}, causesOf(about))
}

// BeginIn starts a child of the span that a context carries (Span.In), with the causes that the context carries (Because).
func (c *Client) BeginIn(ctx context.Context, stage string) *Span {
	w, _ := ctx.Value(workContextKey{}).(*workContext)
	if w == nil {
		w = &workContext{}
	}
	return c.begin(stage, w.span, w.causes)
}

// Record records a span of work that has ended, or that another program did.
func (c *Client) Record(about metav1.Object, stage string, start, end time.Time, err error, attributes ...journey.Attribute) {
	c.Begin(about, stage).EndAt(start, end, err, attributes...)
}

func (c *Client) begin(stage string, parent journey.SpanContext, causes []journey.Cause) *Span {
	if c == nil || c.spans == nil || len(causes) == 0 && parent.IsZero() {
		return nil
	}
	context := journey.NewSpanContext(parent)
	return &Span{client: c, context: context, causes: causes, span: journey.Span{
		SpanContext: context, Parent: parent.Span, Component: c.component, Stage: stage, Start: time.Now(), Causes: causes,
	}}
}

// Begin starts a child span.
func (s *Span) Begin(stage string) *Span {
	if s == nil {
		return nil
	}
	return s.client.begin(stage, s.context, s.causes)
}

// Record records a child span that has ended, or that another program did.
func (s *Span) Record(stage string, start, end time.Time, err error, attributes ...journey.Attribute) {
	s.Begin(stage).EndAt(start, end, err, attributes...)
}

// In returns a context for what is done within the span.
func (s *Span) In(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	w := workContext{span: s.context, causes: s.causes}
	if before, _ := ctx.Value(workContextKey{}).(*workContext); before != nil {
		for _, c := range before.causes {
			w.add(c)
		}
	}
	return w.context(ctx)
}

// Set adds an attribute. The value is formatted as by fmt.Sprint.
func (s *Span) Set(key string, value any) {
	if s == nil {
		return
	}
	text, ok := value.(string)
	if !ok {
		text = fmt.Sprint(value)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended && len(s.span.Attributes) < journey.MaxAttributes {
		s.span.Attributes = append(s.span.Attributes, journey.Attribute{Key: key, Value: text})
	}
}

// End records the span. Only the first call has an effect.
func (s *Span) End(err error) {
	s.EndAt(time.Time{}, time.Now(), err)
}

// EndAt records the span with other times. A zero start means when Begin was called.
func (s *Span) EndAt(start, end time.Time, err error, attributes ...journey.Attribute) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	if !start.IsZero() {
		s.span.Start = start
	}
	s.span.Duration = end.Sub(s.span.Start)
	s.span.Attributes = append(s.span.Attributes, attributes...)
	if err != nil {
		s.span.Error = err.Error()
	}
	s.span.Clip()
	s.client.spans.PutSpan(s.span)
}
