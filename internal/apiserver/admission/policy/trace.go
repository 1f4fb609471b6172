package policy

import (
	"time"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/policy/evaluate"
)

// Trace records evaluations of policies in the trace of the request. A nil Trace, of a request without origin, records nothing and reads no clock.
type Trace struct {
	kind       string
	attributes *admission.Attributes
	request    *evaluate.Request
}

// NewTrace returns the trace of a write; nil if nobody wants to know. kind is that of admission.Call.
func NewTrace(kind string, a *admission.Attributes, r *evaluate.Request) *Trace {
	if a.Origin == nil {
		return nil
	}
	return &Trace{kind, a, r}
}

// An Evaluation is an evaluation of a policy under a binding that is under way.
type Evaluation struct {
	start time.Time
	cost  int64
}

// Begin is called before an evaluation.
func (t *Trace) Begin() Evaluation {
	if t == nil {
		return Evaluation{}
	}
	return Evaluation{time.Now(), t.request.Cost()}
}

// End records an evaluation with its outcome. The binding is empty if the policy could not be matched; err is why the write is refused, or would be.
func (t *Trace) End(e Evaluation, policy string, b *Binding, p *Param, v admission.Verdict, err error) {
	if t == nil {
		return
	}
	c := admission.Call{Kind: t.kind, Name: policy, Start: e.start, Duration: time.Since(e.start), Cost: t.request.Cost() - e.cost, Verdict: v, Err: err}
	if b != nil {
		c.Under = b.Name
	}
	if p != nil {
		if c.Param = p.Name; p.Namespace != "" {
			c.Param = p.Namespace + "/" + p.Name
		}
	}
	t.attributes.Origin.Called(t.attributes, c)
}

// Failed returns the verdict on a policy that could not be applied.
func (d *Definition) Failed() admission.Verdict {
	if d.Ignore() {
		return admission.FailedOpen
	}
	return admission.Failed
}
