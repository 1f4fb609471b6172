package admission

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
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

// Call is one call of a webhook, for traces.
type Call struct {
	Kind                   string // "mutating webhook" or "validating webhook"
	Configuration, Webhook string
	Start                  time.Time
	Duration               time.Duration
	Verdict                Verdict
	Err                    error // why the write was refused, or the webhook failed
}

// Verdict is the outcome of a call of a webhook.
type Verdict string

const (
	Allowed    Verdict = "allowed"
	Patched    Verdict = "patched"     // allowed, and the object was changed
	Denied     Verdict = "denied"      // by the webhook
	FailedOpen Verdict = "failed open" // the webhook failed, and its failurePolicy is Ignore
	Failed     Verdict = "failed"      // the webhook failed, which refused the write
)
