package verbs

import (
	"strconv"

	"skiff/internal/apiserver/admission"
	"skiff/internal/catalog"
	"skiff/internal/journey"
)

// maxCalls bounds the spans of a request: of a policy with a thousand bindings the first will do. What refused the request is recorded in any case.
const maxCalls = 64

// Called records a call of a webhook, or an evaluation of a policy, as a span of the request; and as a failure if it refused the request or failed.
func (rq *Request) Called(a *admission.Attributes, c admission.Call) {
	if rq.Trace == nil {
		return
	}
	failed := c.Verdict.Refuses() || c.Verdict == admission.FailedOpen
	if rq.calls.Add(1) > maxCalls && !failed {
		return
	}
	span := journey.Span{Component: "kube-apiserver", Stage: c.Kind, Start: c.Start, Duration: c.Duration, Attributes: callAttributes(&c)}
	if c.Err != nil {
		span.Error = c.Err.Error()
	}
	rq.Trace.Span(span)
	if !failed || a.DryRun {
		return
	}
	failure := journey.Failure{By: c.Kind, Name: c.Name, Configuration: c.Under, Verdict: string(c.Verdict), Message: span.Error}
	failure.Object, failure.GenerateName = nameOf(a)
	if failure.Object != "" && c.Verdict.Refuses() {
		rq.Trace.Named(failure.Object)
	}
	rq.Trace.Failed(failure)
}

func callAttributes(c *admission.Call) []journey.Attribute {
	name, under := journey.AttributeWebhook, journey.AttributeConfiguration
	policy := c.Kind == journey.MutatingPolicy || c.Kind == journey.ValidatingPolicy
	if policy {
		name, under = journey.AttributePolicy, journey.AttributeBinding
	}
	list := make([]journey.Attribute, 0, 5)
	add := func(key, value string) {
		if value != "" {
			list = append(list, journey.Attribute{Key: key, Value: value})
		}
	}
	add(under, c.Under)
	add(name, c.Name)
	add(journey.AttributeParam, c.Param)
	if policy {
		add(journey.AttributeCost, strconv.FormatInt(c.Cost, 10))
	}
	add(journey.AttributeVerdict, string(c.Verdict))
	return list
}

// nameOf returns the name of the object that a write is about, or the prefix from which the server makes a name.
func nameOf(a *admission.Attributes) (name, generateName string) {
	switch {
	case a.Object == nil || a.Operation != admission.Create:
		return a.Name, ""
	case a.Object.GetGenerateName() != "" && a.Subresource == "":
		return "", a.Object.GetGenerateName()
	}
	return a.Object.GetName(), ""
}

// rulesRun records a run of the CEL rules of a custom resource as a span of the request.
func (rq *Request) rulesRun(run *catalog.RulesRun) {
	if rq.Trace == nil {
		return
	}
	rq.Trace.Span(journey.Span{Component: "kube-apiserver", Stage: journey.ValidationRules, Start: run.Start, Duration: run.Took, Attributes: []journey.Attribute{
		{Key: journey.AttributeDefinition, Value: run.Definition}, {Key: journey.AttributeCost, Value: strconv.FormatInt(run.Cost, 10)}}})
}
