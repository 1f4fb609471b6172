package subresources

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/catalog"
	"skiff/internal/catalog/core"
	"skiff/internal/catalog/pod"
)

// bind assigns a pod to a node: POST pods/NAME/binding, or bindings. Schedulers do it for every pod, so it is short: the pod is read from the cache,
// changed and written, without the defaults, validation and hooks that other updates of a pod go through.
func (h *handlers) bind(rq *verbs.Request) error {
	if err := requireCreate(rq); err != nil {
		return err
	}
	binding := &corev1.Binding{}
	opts, err := decodeAndAdmit(rq, binding, corev1.SchemeGroupVersion.WithKind("Binding"))
	if err != nil {
		return err
	}
	if rq.Route.Name != "" && rq.Route.Name != binding.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := core.ValidateBinding(binding); len(errs) > 0 {
		return errs.ToAggregate() // which is answered with 500, as upstream
	}
	if err := validateAdmission(rq, binding, opts); err != nil {
		return err
	}
	if binding.Name == "" {
		return apierrors.NewBadRequest("Name parameter required.")
	}
	pods := h.API.Endpoint("", "v1", "pods").Registry
	it, _, err := pods.Update(rq.Ctx, registry.Update{Namespace: rq.Route.Namespace, Name: binding.Name, Unchecked: true, Write: rq.RegistryWrite(opts.DryRun, nil),
		Transform: func(_ context.Context, current catalog.Object) (catalog.Object, error) {
			p := current.(*corev1.Pod)
			if err := h.checkBinding(p, binding); err != nil {
				return nil, err
			}
			if err := pod.Bind(p, binding, time.Now()); err != nil {
				return nil, apierrors.NewConflict(corev1.Resource("pods/binding"), p.Name, err)
			}
			return p, nil
		}})
	if err != nil {
		return err
	}
	if !opts.DryRun {
		rq.Trace.Named(it.Name)
		rq.Trace.Wrote("pods", it.UID, it.Revision)
	}
	return sendSuccess(rq)
}

// checkBinding refuses a binding that has the UID or resourceVersion of another pod or version of it.
func (h *handlers) checkBinding(p *corev1.Pod, b *corev1.Binding) error {
	var what string
	var want, have any
	switch {
	case b.UID != "" && b.UID != p.UID:
		what, want, have = "UID", b.UID, p.UID
	case b.ResourceVersion != "" && b.ResourceVersion != p.ResourceVersion:
		what, want, have = "ResourceVersion", b.ResourceVersion, p.ResourceVersion
	default:
		return nil
	}
	return apierrors.NewConflict(corev1.Resource("pods"), p.Name,
		fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s/pods/%s/%s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: %s in precondition: %v, %[4]s in object meta: %[6]v",
			h.EtcdPrefix, p.Namespace, p.Name, what, want, have))
}
