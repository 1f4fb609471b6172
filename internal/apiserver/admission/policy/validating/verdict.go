package validating

import (
	"errors"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"skiff/internal/apiserver/admission"
)

// severity orders verdicts: that of a policy is the worst of its validations.
var severity = []admission.Verdict{admission.Allowed, admission.Audited, admission.Warned, admission.FailedOpen, admission.Failed, admission.Denied}

// verdict returns what the outcome means under a binding with actions, for traces, and the first reason for it.
func (o *outcome) verdict(actions []admissionregistrationv1.ValidationAction) (admission.Verdict, error) {
	if o.unmatched {
		return admission.Unmatched, nil
	}
	worst, message := admission.Allowed, ""
	add := func(v admission.Verdict, text string) {
		if slices.Index(severity, v) > slices.Index(severity, worst) {
			worst, message = v, text
		}
	}
	for i := range o.decisions {
		d := &o.decisions[i]
		switch {
		case d.denied:
			add(d.verdict(actions), d.message)
		case d.failed:
			add(admission.FailedOpen, d.message)
		}
	}
	for i := range o.annotations {
		if err := o.annotations[i].err; err != "" {
			add(admission.Failed, err)
		}
	}
	if worst == admission.Allowed {
		return worst, nil
	}
	return worst, errors.New(message)
}

// verdict returns what a denial means under a binding with actions.
func (d *decision) verdict(actions []admissionregistrationv1.ValidationAction) admission.Verdict {
	switch {
	case slices.Contains(actions, admissionregistrationv1.Deny) && d.failed:
		return admission.Failed
	case slices.Contains(actions, admissionregistrationv1.Deny):
		return admission.Denied
	case slices.Contains(actions, admissionregistrationv1.Warn):
		return admission.Warned
	}
	return admission.Audited
}
