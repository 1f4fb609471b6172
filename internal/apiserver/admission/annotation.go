package admission

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"skiff/internal/journey"
)

// Annotation is what a plugin has to say to the audit log about a request.
type Annotation struct {
	Key, Value string
	// Body says that the value shows a part of the object: only the audit levels that log bodies may have it.
	Body bool
}

// AddAnnotation annotates the request for the audit log. The key must be a DNS subdomain, a slash and a name.
func (a *Attributes) AddAnnotation(n Annotation) error {
	if strings.Count(n.Key, "/") != 1 {
		return errors.New("annotation key has invalid format, the right format is a DNS subdomain prefix and '/' and key name. (e.g. 'podsecuritypolicy.admission.k8s.io/admit-policy')")
	}
	if problems := validation.IsQualifiedName(n.Key); len(problems) > 0 {
		return fmt.Errorf("annotation key has invalid format %s. A qualified name like 'podsecuritypolicy.admission.k8s.io/admit-policy' is required.", strings.Join(problems, ","))
	}
	if a.Origin != nil {
		a.Origin.Annotate(n)
	}
	return nil
}

// Call is one call of a webhook, or one evaluation of a policy under a binding, for traces.
type Call struct {
	Kind     string // a stage of package journey: "mutating webhook", "validating policy"
	Name     string // of the webhook or policy
	Under    string // the configuration that the webhook is in, or the binding; empty if the policy could not be matched
	Param    string // the parameter of the policy, if it has one
	Start    time.Time
	Duration time.Duration
	Cost     int64 // of the CEL expressions of a policy
	Verdict  Verdict
	Err      error // why the write was refused, or would have been, or the call failed
}

// Verdict is the outcome of a call of a webhook or of an evaluation of a policy.
type Verdict string

const (
	Allowed    Verdict = "allowed"
	Patched    Verdict = "patched"          // allowed, and the object was changed
	Denied     Verdict = journey.Denied     // by the webhook or policy
	Failed     Verdict = journey.Failed     // the webhook or policy failed, which refused the write
	FailedOpen Verdict = journey.FailedOpen // it failed, and its failurePolicy is Ignore

	// The rest is of policies only.
	Warned    Verdict = "warned"             // a validation failed, of which the client is warned
	Audited   Verdict = "audited"            // a validation failed, which the audit log has
	Unmatched Verdict = "conditions not met" // the match conditions do not hold
)

// Refuses reports whether the write was refused because of it.
func (v Verdict) Refuses() bool { return v == Denied || v == Failed }
