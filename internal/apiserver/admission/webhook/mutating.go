package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/admission"
)

// Prefixes of audit annotations.
const (
	patchPrefix    = "patch.webhook.admission.k8s.io/"
	mutationPrefix = "mutation.webhook.admission.k8s.io/"
	failedOpen     = "failed-open."
)

// Admit implements admission.Mutator: it calls the webhooks that select the request one after the other, each with what those before it made of the
// object.
func (m *Mutating) Admit(ctx context.Context, a *admission.Attributes) error {
	list := m.current.Load().candidates(a)
	if len(list) == 0 {
		return nil
	}
	r, err := newRequest(a)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	state, _ := a.Recall(m.name).(*reinvocation)
	if state == nil {
		state = &reinvocation{}
		a.Remember(m.name, state)
	}
	if a.Reinvoked() && state.outputChanged(objectOf(a)) {
		state.reinvokeInvoked() // other plugins have changed the object in their second run
	}
	var owned []metav1.ManagedFieldsEntry
	if a.Object != nil {
		owned = a.Object.GetManagedFields()
	}
	for _, c := range list {
		if err := m.admit(ctx, r, c, state); err != nil {
			return err
		}
	}
	if a.Object != nil {
		m.keepManagedFields(a, owned)
	}
	if a.ReinvocationWanted() && !a.Reinvoked() {
		state.remember(objectOf(a))
	}
	return nil
}

// keepManagedFields restores the managedFields that the request had if webhooks have made them invalid.
func (m *Mutating) keepManagedFields(a *admission.Attributes, owned []metav1.ManagedFieldsEntry) {
	if err := managedfields.ValidateManagedFields(a.Object.GetManagedFields()); err != nil {
		a.Object.SetManagedFields(owned)
		a.Warn(fmt.Sprintf(".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: %v", err))
	}
}

// admit calls one webhook, if it selects the request.
func (m *Mutating) admit(ctx context.Context, r *request, c candidate, state *reinvocation) error {
	selected, err := m.matches(ctx, r, c)
	if err != nil || !selected {
		return err
	}
	if r.Reinvoked() && !state.again[c.uid] {
		return nil // not even if it selects the request only now
	}
	start := time.Now()
	changed, err := m.call(ctx, r, c)
	refusal := m.settle(ctx, r, c.hook, start, changed, err, func() { m.annotate(r, failedOpen+mutationPrefix, c, c.Name, false) })
	if changed {
		state.reinvokeInvoked()
		r.Reinvoke()
	}
	if ptr.Deref(c.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy) == admissionregistrationv1.IfNeededReinvocationPolicy {
		state.invoked(c.uid)
	}
	if refusal == nil && err != nil && ctx.Err() != nil {
		return errTimeout // the request has no time left, not only the webhook
	}
	return refusal
}

// call asks a webhook, and applies its patch. It reports whether that has changed the object.
func (m *Mutating) call(ctx context.Context, r *request, c candidate) (changed bool, err error) {
	defer func() {
		m.annotateJSON(r, mutationPrefix, c, mutationAnnotation{c.configuration, c.Name, changed}, false)
	}()
	f, err := r.form(ctx, c.as)
	if err != nil {
		return false, err
	}
	message, err := r.message(f)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	response, err := m.ask(ctx, r, c.hook, message)
	if err != nil || len(response.Patch) == 0 {
		return false, err
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		return false, &callError{c.Name, fmt.Errorf("received undecodable patch in webhook response: %w", err), apierrors.NewServiceUnavailable("error decoding patch in webhook response")}
	}
	if len(patch) == 0 {
		return false, nil
	}
	if f.object == nil {
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", c.Name))
	}
	if kind := *response.PatchType; kind != "JSONPatch" {
		return false, &callError{c.Name, fmt.Errorf("unsupported patch type %q", kind), denied(c.Name, response.Result)}
	}
	if changed, err = r.apply(ctx, f, patch); err != nil {
		return false, apierrors.NewInternalError(err)
	}
	m.annotateJSON(r, patchPrefix, c, patchAnnotation{c.configuration, c.Name, patch, "JSONPatch"}, true)
	return changed, nil
}

// mutationAnnotation says in the audit log whether a webhook changed the object.
type mutationAnnotation struct {
	Configuration string `json:"configuration"`
	Webhook       string `json:"webhook"`
	Mutated       bool   `json:"mutated"`
}

// patchAnnotation says in the audit log how.
type patchAnnotation struct {
	Configuration string          `json:"configuration"`
	Webhook       string          `json:"webhook"`
	Patch         jsonpatch.Patch `json:"patch,omitempty"`
	PatchType     string          `json:"patchType,omitempty"`
}

func (m *Mutating) annotateJSON(r *request, prefix string, c candidate, value any, body bool) {
	if r.Origin == nil {
		return
	}
	text, err := json.Marshal(value)
	if err != nil {
		m.log.Warn("failed to encode audit annotation", "webhook", c.Name, "err", err)
		return
	}
	m.annotate(r, prefix, c, string(text), body)
}

func (m *Mutating) annotate(r *request, prefix string, c candidate, value string, body bool) {
	round := 0
	if r.Reinvoked() {
		round = 1
	}
	key := fmt.Sprintf("%sround_%d_index_%d", prefix, round, c.position)
	if err := r.AddAnnotation(admission.Annotation{Key: key, Value: value, Body: body}); err != nil {
		m.log.Warn("failed to set admission audit annotation", "webhook", c.Name, "key", key, "err", err)
	}
}

// reinvocation is what the first run of mutating webhooks leaves for the second.
type reinvocation struct {
	output      runtime.Object  // the object after the last webhook
	reinvocable map[string]bool // uids of the webhooks called so far that want to be called again if the object changes after them
	again       map[string]bool // uids of the webhooks to call in the second run
}

func (s *reinvocation) invoked(uid string) {
	if s.reinvocable == nil {
		s.reinvocable = map[string]bool{}
	}
	s.reinvocable[uid] = true
}

// reinvokeInvoked is called when the object has changed: those that were called before must see it.
func (s *reinvocation) reinvokeInvoked() {
	if s.again == nil {
		s.again = map[string]bool{}
	}
	for uid := range s.reinvocable {
		s.again[uid] = true
	}
	clear(s.reinvocable)
}

func (s *reinvocation) remember(obj runtime.Object) {
	if obj != nil {
		s.output = obj.DeepCopyObject()
	}
}

func (s *reinvocation) outputChanged(obj runtime.Object) bool {
	if s.output == nil || obj == nil {
		return s.output != obj
	}
	return !admission.Same(s.output, obj)
}
