package validating

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/policy"
	"skiff/internal/apiserver/admission/policy/evaluate"
	"skiff/internal/apiserver/admission/policy/match"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
	"skiff/internal/journey"
)

// Name is the name of the plugin in flags.
const Name = "ValidatingAdmissionPolicy"

// New returns the plugin.
func New(r objects.Reader, o policy.Options) admission.Plugin {
	p := &plugin{metrics: newMetrics(o.Metrics)}
	p.source = policy.NewSource(r, o, policy.Kinds[*compiled]{Plugin: Name,
		Policies: admissionregistrationv1.Resource("validatingadmissionpolicies"),
		Bindings: admissionregistrationv1.Resource("validatingadmissionpolicybindings"),
		Definition: func(obj catalog.Object) policy.Definition {
			p := obj.(*admissionregistrationv1.ValidatingAdmissionPolicy)
			return policy.Definition{Name: p.Name, Failure: p.Spec.FailurePolicy, ParamKind: p.Spec.ParamKind, Constraints: p.Spec.MatchConstraints}
		},
		Spec:    func(obj catalog.Object) any { return obj.(*admissionregistrationv1.ValidatingAdmissionPolicy).Spec },
		Compile: compile,
		Binding: func(obj catalog.Object) policy.Binding {
			b := obj.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding)
			return policy.Binding{Name: b.Name, Policy: b.Spec.PolicyName, Criteria: match.New(b.Spec.MatchResources),
				Ref: policy.NewParamRef(b.Spec.ParamRef), Actions: b.Spec.ValidationActions}
		}})
	return p
}

type plugin struct {
	source  *policy.Source[*compiled]
	metrics *metrics
}

func (*plugin) Name() string { return Name }

// Handles reports whether a policy may apply to the write.
func (p *plugin) Handles(a *admission.Attributes) bool { return len(p.source.Hooks(a)) > 0 }

// Validate refuses the write if a policy denies it.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	subject := match.NewSubject(ctx, a, p.source.Reader, p.source.Equivalent(a))
	e := &evaluation{plugin: p, subject: subject, params: p.source.NewParams(), request: evaluate.NewRequest(a, subject.In, p.source.Authorizer)}
	e.trace = policy.NewTrace(journey.ValidatingPolicy, a, e.request)
	for _, hook := range p.source.Hooks(a) {
		if err := e.hook(ctx, hook); err != nil {
			return err
		}
	}
	e.publishFailures()
	if e.denial == nil {
		return nil
	}
	return e.denial.error(a)
}

// evaluation is the evaluation of all policies on one write.
type evaluation struct {
	*plugin
	subject  *match.Subject
	request  *evaluate.Request
	params   *policy.Params
	trace    *policy.Trace
	failures []failure
	denial   *denial // the first
}

// denial is a refusal by a policy. Without a binding it is the policy that could not be matched.
type denial struct {
	policy, binding string
	message         string
	reason          metav1.StatusReason
}

func (d *denial) error(a *admission.Attributes) error {
	by := "'" + d.policy + "'"
	if d.binding != "" {
		by += " with binding '" + d.binding + "'"
	}
	message := fmt.Sprintf("ValidatingAdmissionPolicy %s denied request: %s", by, d.message)
	err := apierrors.NewForbidden(a.Info.GVR.GroupResource(), a.Subject(), errors.New(message))
	err.ErrStatus.Reason = d.reason
	if d.reason == "" {
		err.ErrStatus.Reason = metav1.StatusReasonInvalid
	}
	err.ErrStatus.Code = codeOf(err.ErrStatus.Reason)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Message: message})
	return err
}

func codeOf(r metav1.StatusReason) int32 {
	switch r {
	case metav1.StatusReasonForbidden:
		return http.StatusForbidden
	case metav1.StatusReasonUnauthorized:
		return http.StatusUnauthorized
	case metav1.StatusReasonRequestEntityTooLarge:
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusUnprocessableEntity
}

func (e *evaluation) deny(d denial) {
	if e.denial == nil {
		e.denial = &d
	}
}

// misconfigured denies the write because a policy or its binding cannot be applied, unless failures are ignored. b is nil if it is the policy.
func (e *evaluation) misconfigured(h *policy.Hook[*compiled], b *policy.Binding, began policy.Evaluation, err error) {
	part, name := "policy", ""
	if b != nil {
		part, name = "binding", b.Name
	}
	err = fmt.Errorf("failed to configure %s: %w", part, err)
	e.trace.End(began, h.Name, b, nil, h.Failed(), err)
	if !h.Ignore() {
		e.deny(denial{policy: h.Name, binding: name, message: err.Error()})
	}
}

func (e *evaluation) stage(name string) {
	if e.subject.Stage != nil {
		e.subject.Stage(name)
	}
}

// hook evaluates one policy with all of its bindings. An error ends the request, whatever the failure policy is.
func (e *evaluation) hook(ctx context.Context, h *policy.Hook[*compiled]) error {
	began := e.trace.Begin()
	matched, err := h.Criteria.Match(e.subject)
	if err != nil {
		e.misconfigured(h, nil, began, err)
		return nil
	}
	if matched == nil {
		return nil
	}
	if err := e.params.Known(h.ParamKind); err != nil {
		e.misconfigured(h, nil, began, err)
		return nil
	}
	e.stage(h.Stage)
	deniedBefore := e.denial != nil
	annotations := annotations{}
	outcomes := map[*policy.Param]*outcome{}
	for _, b := range h.Bindings {
		if err := e.binding(ctx, h, b, matched, outcomes, annotations); err != nil {
			return err
		}
	}
	annotations.publish(h.Name, e.subject.Attributes)
	if e.denial != nil && !deniedBefore {
		e.stage(h.Refused)
	}
	return nil
}

func (e *evaluation) binding(ctx context.Context, h *policy.Hook[*compiled], b *policy.Binding, matched *catalog.Info, outcomes map[*policy.Param]*outcome, found annotations) error {
	began := e.trace.Begin()
	if bound, err := b.Criteria.Match(e.subject); err != nil {
		e.misconfigured(h, b, began, err)
		return nil
	} else if bound == nil {
		return nil
	}
	params, err := e.params.Collect(ctx, h.ParamKind, b.Ref, e.subject.In)
	if err != nil {
		e.misconfigured(h, b, began, err)
		return nil
	}
	namespace, err := e.subject.NamespaceObject()
	if err != nil {
		return err
	}
	e.request.SetNamespace(namespace)
	for _, param := range params {
		o := outcomes[param]
		if o == nil {
			version, err := e.request.Version(ctx, matched)
			if err != nil {
				return err
			}
			made := h.Compiled().evaluate(ctx, version, param, h.Ignore())
			o = &made
			outcomes[param] = o
		}
		e.enforce(h, b, o, found)
		verdict, err := o.verdict(b.Actions)
		e.trace.End(began, h.Name, b, param, verdict, err)
		began = e.trace.Begin()
	}
	return nil
}

// enforce does with an outcome what the actions of the binding say.
func (e *evaluation) enforce(h *policy.Hook[*compiled], b *policy.Binding, o *outcome, found annotations) {
	for i := range o.decisions {
		d := &o.decisions[i]
		if !d.denied {
			if d.failed {
				e.metrics.observe(h.Name, b.Name, d, "allow")
			}
			continue
		}
		for _, action := range b.Actions {
			switch action {
			case admissionregistrationv1.Deny:
				e.deny(denial{h.Name, b.Name, d.message, d.reason})
				e.metrics.observe(h.Name, b.Name, d, "deny")
			case admissionregistrationv1.Audit:
				e.failures = append(e.failures, failure{Message: d.message, Policy: b.Policy, Binding: b.Name, ExpressionIndex: i, ValidationActions: b.Actions})
				e.metrics.observe(h.Name, b.Name, d, "audit")
			case admissionregistrationv1.Warn:
				e.subject.Warn(fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s", h.Name, b.Name, d.message))
				e.metrics.observe(h.Name, b.Name, d, "warn")
			}
		}
	}
	for i := range o.annotations {
		a := &o.annotations[i]
		if a.err != "" {
			e.deny(denial{policy: h.Name, binding: b.Name, message: a.err})
			e.metrics.observe(h.Name, b.Name, &decision{denied: true, failed: true, message: a.err, elapsed: a.elapsed}, "deny")
		} else if a.value != "" {
			found.add(a.key, a.value)
		}
	}
}
