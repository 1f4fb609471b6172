package mutating

import (
	"context"
	"errors"
	"fmt"
	"time"

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
const Name = "MutatingAdmissionPolicy"

// New returns the plugin.
func New(r objects.Reader, o policy.Options) admission.Plugin {
	p := &plugin{metrics: newMetrics(o.Metrics)}
	p.source = policy.NewSource(r, o, policy.Kinds[*compiled]{Plugin: Name,
		Policies: admissionregistrationv1.Resource("mutatingadmissionpolicies"),
		Bindings: admissionregistrationv1.Resource("mutatingadmissionpolicybindings"),
		Definition: func(obj catalog.Object) policy.Definition {
			p := obj.(*admissionregistrationv1.MutatingAdmissionPolicy)
			return policy.Definition{Name: p.Name, Failure: p.Spec.FailurePolicy, ParamKind: p.Spec.ParamKind, Constraints: p.Spec.MatchConstraints}
		},
		Spec:    func(obj catalog.Object) any { return obj.(*admissionregistrationv1.MutatingAdmissionPolicy).Spec },
		Compile: compile,
		Binding: func(obj catalog.Object) policy.Binding {
			b := obj.(*admissionregistrationv1.MutatingAdmissionPolicyBinding)
			return policy.Binding{Name: b.Name, Policy: b.Spec.PolicyName, Criteria: match.New(b.Spec.MatchResources), Ref: policy.NewParamRef(b.Spec.ParamRef)}
		}})
	return p
}

type plugin struct {
	source  *policy.Source[*compiled]
	metrics *metrics
}

func (*plugin) Name() string { return Name }

// Handles reports whether a policy may apply to the write. A deletion has nothing to change.
func (p *plugin) Handles(a *admission.Attributes) bool {
	return a.Operation != admission.Delete && len(p.source.Hooks(a)) > 0
}

// Admit changes the object as the policies say.
func (p *plugin) Admit(ctx context.Context, a *admission.Attributes) error {
	subject := match.NewSubject(ctx, a, p.source.Reader, p.source.Equivalent(a))
	e := &evaluation{plugin: p, subject: subject, params: p.source.NewParams(), request: evaluate.NewRequest(a, subject.In, p.source.Authorizer)}
	e.trace = policy.NewTrace(journey.MutatingPolicy, a, e.request)
	for _, hook := range p.source.Hooks(a) {
		e.collect(ctx, hook)
	}
	if len(e.invocations) > 0 {
		if err := e.invoke(ctx); err != nil {
			return err
		}
	}
	return e.refusal()
}

// evaluation is the evaluation of all policies on one write.
type evaluation struct {
	*plugin
	subject     *match.Subject
	request     *evaluate.Request
	params      *policy.Params
	trace       *policy.Trace
	invocations []invocation
	refusals    []refusal
	changed     bool // whether a policy has changed the object in this run
}

// invocation is a policy that applies to the write under a binding, with a parameter.
type invocation struct {
	hook    *policy.Hook[*compiled]
	binding *policy.Binding
	param   *policy.Param
	matched *catalog.Info
}

// refusal is a policy that could not be applied, and whose failures are not ignored.
type refusal struct {
	message string
	reason  metav1.StatusReason // empty: Forbidden
}

// collect finds out under which bindings a policy applies, and with which parameters.
func (e *evaluation) collect(ctx context.Context, h *policy.Hook[*compiled]) {
	began := e.trace.Begin()
	matched, err := h.Criteria.Match(e.subject)
	if err == nil && matched != nil {
		err = e.params.Known(h.ParamKind)
	}
	if err != nil {
		err = fmt.Errorf("failed to configure policy: %w", err)
		e.trace.End(began, h.Name, nil, nil, h.Failed(), err)
		e.refuse(h, nil, err, "")
	}
	if err != nil || matched == nil {
		return
	}
	for _, b := range h.Bindings {
		began := e.trace.Begin()
		bound, err := b.Criteria.Match(e.subject)
		if err == nil && bound == nil {
			continue
		}
		var params []*policy.Param
		if err == nil {
			params, err = e.params.Collect(ctx, h.ParamKind, b.Ref, e.subject.In)
		}
		if err != nil {
			err = fmt.Errorf("failed to configure binding: %w", err)
			e.trace.End(began, h.Name, b, nil, h.Failed(), err)
			e.refuse(h, b, err, "")
			continue
		}
		for _, param := range params {
			e.invocations = append(e.invocations, invocation{h, b, param, matched})
		}
	}
}

func (e *evaluation) refuse(h *policy.Hook[*compiled], b *policy.Binding, err error, reason metav1.StatusReason) {
	if h.Ignore() {
		return
	}
	message := fmt.Sprintf("policy %q denied request: %s", h.Name, err)
	if b != nil {
		message = fmt.Sprintf("policy '%s' with binding '%s' denied request: %s", h.Name, b.Name, err)
	}
	e.refusals = append(e.refusals, refusal{message, reason})
	e.stage(h.Refused)
}

func (e *evaluation) stage(name string) {
	if e.subject.Stage != nil {
		e.subject.Stage(name)
	}
}

// refusal returns the error for all refusals. Its message is that of the first; upstream's code stays Forbidden whatever the reason is.
func (e *evaluation) refusal() error {
	if len(e.refusals) == 0 {
		return nil
	}
	a := e.subject.Attributes
	err := apierrors.NewForbidden(a.Info.GVR.GroupResource(), a.Subject(), errors.New("admission request denied by policy"))
	err.ErrStatus.Message = e.refusals[0].message
	if e.refusals[0].reason != "" {
		err.ErrStatus.Reason = e.refusals[0].reason
	}
	for _, r := range e.refusals {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Message: r.message})
	}
	return err
}

// invoke runs all invocations in order. It returns only errors that refuse the write whatever the failure policies are.
func (e *evaluation) invoke(ctx context.Context) error {
	a := e.subject.Attributes
	namespace, err := e.subject.NamespaceObject()
	if err != nil {
		return err
	}
	e.request.SetNamespace(namespace)
	again := recall(a)
	again.begin(a)
	defer func() { again.end(a) }()
	for i := range e.invocations {
		if err := e.invokeOne(ctx, &e.invocations[i], again); err != nil {
			return err
		}
	}
	if e.changed {
		again.objectChanged()
		e.subject.Reinvoke()
	}
	return nil
}

// invokeOne applies a policy under a binding, and records how that went.
func (e *evaluation) invokeOne(ctx context.Context, in *invocation, again *reinvocation) error {
	began := e.trace.Begin()
	e.stage(in.hook.Stage)
	verdict, failure, err := e.apply(ctx, in, again)
	switch {
	case err != nil:
		e.trace.End(began, in.hook.Name, in.binding, in.param, admission.Failed, err)
	case failure != nil:
		e.trace.End(began, in.hook.Name, in.binding, in.param, in.hook.Failed(), failure)
	case verdict != "":
		e.trace.End(began, in.hook.Name, in.binding, in.param, verdict, nil)
	}
	return err
}

// apply applies a policy under a binding. The verdict is empty if it does not run a second time. failure is the first error that the failure policy decides
// about; err refuses the write whatever that is.
func (e *evaluation) apply(ctx context.Context, in *invocation, again *reinvocation) (verdict admission.Verdict, failure, err error) {
	policy := in.hook.Compiled()
	version, err := e.request.Version(ctx, in.matched)
	if err != nil {
		return "", nil, err
	}
	applies, err := policy.conditions.Match(ctx, version, policy.variables, in.param.CELValue(), in.hook.Ignore())
	if err != nil {
		e.refuse(in.hook, in.binding, err, metav1.StatusReasonInvalid)
		return "", err, nil
	}
	key := in.key()
	switch {
	case e.subject.Reinvoked() && !again.due[key]:
		return "", nil, nil
	case !applies:
		return admission.Unmatched, nil, nil
	}
	changed := false
	for i := range policy.mutations {
		if version, err = e.request.Version(ctx, in.matched); err != nil {
			return "", nil, err
		}
		if version.Object() == nil {
			break
		}
		start := time.Now()
		mutated, err := e.mutate(ctx, version, policy, &policy.mutations[i], in)
		e.metrics.observe(in.hook.Name, in.binding.Name, err, time.Since(start))
		changed = changed || mutated
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			return "", nil, err
		}
		if err != nil {
			e.refuse(in.hook, in.binding, err, metav1.StatusReasonInvalid)
			if failure == nil {
				failure = err
			}
		}
	}
	e.changed = e.changed || changed
	if policy.reinvoke {
		again.ran[key] = true
	}
	if changed {
		return admission.Patched, failure, nil
	}
	return admission.Allowed, failure, nil
}
