package client

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/journey"
)

type workContextKey struct{}

// workContext is the value that a context carries: the span and the causes of the requests made with it.
type workContext struct {
	span   journey.SpanContext // the span that the requests are part of; zero if there is none
	causes []journey.Cause
	header string // the causes as the value of journey.HeaderCause
}

// add adds a cause, unless there are MaxCauses already.
func (w *workContext) add(c journey.Cause) {
	if len(w.causes) < journey.MaxCauses && !slices.Contains(w.causes, c) {
		w.causes = append(slices.Clip(w.causes), c)
	}
}

// Because returns a context whose requests name an object, in this version, as their cause. A context that has causes already gets one more,
// up to journey.MaxCauses. An object without uid and resourceVersion is no cause.
func Because(ctx context.Context, obj metav1.Object) context.Context {
	before, _ := ctx.Value(workContextKey{}).(*workContext)
	if before == nil {
		before = &workContext{}
	}
	after := *before
	for _, c := range causesOf(obj) {
		after.add(c)
	}
	if len(after.causes) == len(before.causes) {
		return ctx
	}
	return after.context(ctx)
}

// context returns a copy of ctx that carries w.
func (w workContext) context(ctx context.Context) context.Context {
	w.header = journey.FormatCauses(w.causes)
	return context.WithValue(ctx, workContextKey{}, &w)
}

// causesOf returns the version of an object as a cause, or nil if it has none.
func causesOf(obj metav1.Object) []journey.Cause {
	revision, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil || revision <= 0 || obj.GetUID() == "" {
		return nil
	}
	return []journey.Cause{{UID: string(obj.GetUID()), Revision: revision}}
}

// causes is a transport that adds the causes and the span of a request's context to its header.
type causes struct{ next http.RoundTripper }

func (c causes) RoundTrip(req *http.Request) (*http.Response, error) {
	if w, ok := req.Context().Value(workContextKey{}).(*workContext); ok {
		clone := *req // the caller's request must not change
		clone.Header = req.Header.Clone()
		if w.header != "" {
			clone.Header.Set(journey.HeaderCause, w.header)
		}
		if !w.span.IsZero() {
			clone.Header.Set(journey.HeaderTraceparent, w.span.Traceparent())
		}
		req = &clone
	}
	return c.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (c causes) WrappedRoundTripper() http.RoundTripper { return c.next }
