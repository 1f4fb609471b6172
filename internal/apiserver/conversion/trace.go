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

// remember keeps the failures of the webhook of a definition until it works again. Most are of requests that only read, and so have no trace.
func (c *call) remember(r *journey.Recorder) {
	if c.err == nil {
		r.Recovered(journey.ConversionWebhook, c.definition)
		return
	}
	r.Failed(journey.Failure{By: journey.ConversionWebhook, Name: c.definition, Configuration: c.from + " to " + c.to, Verdict: journey.Failed, Message: c.err.Error(),
		Verb: "convert", Resource: "customresourcedefinitions.apiextensions.k8s.io", Object: c.definition})
}

// record records a call as a span of the request in whose context it was made, if that has a trace.
func record(ctx context.Context, c call) {
	t, _ := ctx.Value(traceKey{}).(*journey.Trace)
	if t == nil {
		return
	}
	span := journey.Span{Component: "kube-apiserver", Stage: journey.ConversionWebhook, Start: c.start, Duration: c.took, Attributes: []journey.Attribute{
		{Key: journey.AttributeDefinition, Value: c.definition}, {Key: journey.AttributeFrom, Value: c.from}, {Key: journey.AttributeTo, Value: c.to},
		{Key: journey.AttributeObjects, Value: strconv.Itoa(c.objects)}}}
	if c.err != nil {
		span.Error = c.err.Error()
	}
	t.Span(span)
}
