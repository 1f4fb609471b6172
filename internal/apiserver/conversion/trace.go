package conversion

import (
	"context"
	"strconv"
	"time"

	"skiff/internal/journey"
)

type traceKey struct{}

// WithTrace returns a context whose conversions are recorded as spans of a request.
func WithTrace(ctx context.Context, t *journey.Trace) context.Context {
	if t == nil {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, t)
}

// call is a call of a webhook, for the journey.
type call struct {
	definition, from, to string
	objects              int
	start                time.Time
	took                 time.Duration
	err                  error
}

// record records a call as a span of the request in whose context it was made, if that has a trace.
func record(ctx context.Context, c call) {
	t, _ := ctx.Value(traceKey{}).(*journey.Trace)
	if t == nil {
		return
	}
	span := journey.Span{Component: "kube-apiserver", Stage: "conversion webhook", Start: c.start, Duration: c.took, Attributes: []journey.Attribute{
		{Key: "definition", Value: c.definition}, {Key: "from", Value: c.from}, {Key: "to", Value: c.to}, {Key: "objects", Value: strconv.Itoa(c.objects)}}}
	if c.err != nil {
		span.Error = c.err.Error()
	}
	t.Span(span)
}
