package webhook

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/matchconditions"
	"skiff/internal/catalog"
)

var namespaces = schema.GroupResource{Resource: "namespaces"}

// matches reports whether the selectors and match conditions of a webhook select the request, which its rules select already. The error refuses the
// request.
func (p *plugin) matches(ctx context.Context, r *request, c candidate) (bool, error) {
	inNamespace, namespaceErr := p.inNamespace(ctx, r, c.hook)
	if !inNamespace && namespaceErr == nil {
		return false, nil
	}
	selected, selectorErr := selectsObject(r, c.hook)
	switch {
	case !selected && selectorErr == nil:
		return false, nil
	case namespaceErr != nil:
		return false, namespaceErr
	case selectorErr != nil:
		return false, selectorErr
	case c.conditions == nil:
		return true, nil
	}
	return p.meetsConditions(ctx, r, c)
}

// inNamespace reports whether the namespaceSelector selects the namespace of the request. What is in no namespace, and is none itself, is always selected.
func (p *plugin) inNamespace(ctx context.Context, r *request, h *hook) (bool, error) {
	switch {
	case r.namespace == "" && r.Info.GVR.Resource != "namespaces":
		return true, nil
	case h.namespacesErr != nil:
		return false, apierrors.NewInternalError(h.namespacesErr)
	case h.namespaces.Empty():
		return true, nil
	}
	found, err := p.namespaceLabels(ctx, r)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return false, err
		}
		return false, apierrors.NewInternalError(err)
	}
	return h.namespaces.Matches(found), nil
}

// namespaceLabels returns the labels of the namespace of the request. One that is written has those it will have.
func (p *plugin) namespaceLabels(ctx context.Context, r *request) (labels.Set, error) {
	if isNamespace(r.Attributes) && r.Subresource == "" && r.Object != nil && (r.Operation == admission.Create || r.Operation == admission.Update) {
		return r.Object.GetLabels(), nil
	}
	namespace := p.store.Get(namespaces, "", r.namespace)
	if namespace == nil {
		fresh, err := p.store.Fresh(ctx, namespaces, "", r.namespace) // the cache may lag behind
		if err != nil {
			return nil, err
		}
		namespace = fresh
	}
	return namespace.GetLabels(), nil
}

// selectsObject reports whether the objectSelector selects the object as it is or was.
func selectsObject(r *request, h *hook) (bool, error) {
	if h.objectsErr != nil {
		return false, apierrors.NewInternalError(h.objectsErr)
	}
	selects := func(obj catalog.Object) bool { return obj != nil && h.objects.Matches(labels.Set(obj.GetLabels())) }
	return h.objects.Empty() || selects(r.Object) || selects(r.Old), nil
}

// meetsConditions reports whether all match conditions are true.
func (p *plugin) meetsConditions(ctx context.Context, r *request, c candidate) (bool, error) {
	f, err := r.form(ctx, c.as)
	if err != nil {
		return false, err
	}
	described := *r.describe(f)
	described.Options.Object = r.options
	object, old := f.withKind()
	start := time.Now()
	ok, _, err := c.conditions().Match(ctx, &matchconditions.Request{Object: object, OldObject: old, Review: &described, User: r.User})
	p.metrics.conditions(c.Name, p.step, r.Operation, time.Since(start), ok, err)
	switch {
	case err == nil:
		return ok, nil
	case c.ignoresFailure():
		p.metrics.conditionExclusions.WithLabelValues(c.Name, "webhook", p.step, string(r.Operation)).Inc()
		return false, nil
	}
	return false, apierrors.NewForbidden(r.Info.GVR.GroupResource(), r.name, err)
}
