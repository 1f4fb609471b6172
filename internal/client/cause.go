package client

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/journey"
)

type workKey struct{}

// work is what a context says about why things are done under it, and within what.
type work struct {
	span   journey.SpanContext // zero if it is no part of a span
	causes []journey.Cause
	header string // the causes as they are sent
}

// add adds a cause. Those that came first stay if there are too many.
func (w *work) add(c journey.Cause) {
	if len(w.causes) < journey.MaxCauses && !slices.Contains(w.causes, c) {
		w.causes = append(slices.Clip(w.causes), c)
	}
}

// Because marks what is done under a context as done because of an object, in the version at hand. Every request sent with the context
// tells the server so. A context that has causes already gets one more; those that came first stay if there are too many. An object that
// is not in the API is no cause.
func Because(ctx context.Context, obj metav1.Object) context.Context {
	before, _ := ctx.Value(workKey{}).(*work)
	if before == nil {
		before = &work{}
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

// context is a copy of ctx for what is done so.
func (w work) context(ctx context.Context) context.Context {
	w.header = journey.FormatCauses(w.causes)
	return context.WithValue(ctx, workKey{}, &w)
}

// causesOf is the version of an object, if it has one.
func causesOf(obj metav1.Object) []journey.Cause {
	revision, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil || revision <= 0 || obj.GetUID() == "" {
		return nil
	}
	return []journey.Cause{{UID: string(obj.GetUID()), Revision: revision}}
}

// causes puts the causes a request's context carries, and the span it is sent in, into its header.
type causes struct{ next http.RoundTripper }

func (c causes) RoundTrip(req *http.Request) (*http.Response, error) {
	if w, ok := req.Context().Value(workKey{}).(*work); ok {
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

// WrappedRoundTripper lets client-go find the transport underneath.
func (c causes) WrappedRoundTripper() http.RoundTripper { return c.next }
