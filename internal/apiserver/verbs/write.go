package verbs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/managedfields"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/request"
	"skiff/internal/cache"
	"skiff/internal/catalog"
)

// create stores the object that the body has.
func (rq *Request) create() error {
	opts, err := rq.writeOptions("CreateOptions", "")
	if err != nil {
		return err
	}
	rq.Trace.Stage("decode")
	body, err := rq.ReadBody()
	if err != nil {
		return err
	}
	obj := rq.Endpoint.Info.New().(catalog.Object)
	if err := rq.Decode(body, rq.Endpoint.Info.GVK, obj, opts.Strictness); err != nil {
		return err
	}
	if err := rq.readInitializers(body); err != nil {
		return err
	}
	rq.setSentInitializers()
	if obj.GetResourceVersion() != "" && obj.GetResourceVersion() != "0" {
		return fmt.Errorf("resourceVersion should not be set on objects to be created")
	}
	rq.Endpoint.Info.Default(obj)
	if err := registry.EnsureNamespace(obj, rq.Route.Namespace); err != nil {
		return err
	}
	obj, err = rq.admitCreate(obj, opts)
	if err != nil {
		return err
	}
	it, err := rq.Endpoint.Registry.Create(rq.Ctx, obj, rq.RegistryWrite(opts.DryRun, rq.validateCreate(opts.DryRun)))
	if err != nil {
		return err
	}
	return rq.sendWritten(it, true, opts.DryRun)
}

// admitCreate takes a new object, in the version it was sent in, through managedFields, mutating admission and write guards, and returns it in its
// stored version.
func (rq *Request) admitCreate(obj catalog.Object, opts request.WriteOptions) (catalog.Object, error) {
	info := rq.Endpoint.Info
	if errs := info.ValidateView(rq.Ctx, obj, nil); len(errs) > 0 {
		return nil, apierrors.NewInvalid(info.GVK.GroupKind(), obj.GetName(), errs)
	}
	if rq.Route.Verb != "patch" {
		rq.dedupOwnerReferences(obj, false)
	}
	registry.FillSystemMetadata(obj, time.Now()) // before managedFields are set, so that the client does not own these fields
	rq.Trace.Stage("managed fields")
	manager, err := rq.fieldsManager()
	if err != nil {
		return nil, err
	}
	manager.Create(obj, rq.FieldManager(opts.Manager))
	return rq.admitStored(obj, opts)
}

// fieldsManager returns what keeps the managedFields of the request's resource or subresource.
func (rq *Request) fieldsManager() (*managedfields.Manager, error) {
	m, err := rq.Endpoint.Manager(rq.Route.Subresource)
	if err != nil {
		return nil, err
	}
	return m.In(rq.Ctx)
}

// admitStored does the part of admitCreate that follows managedFields.
func (rq *Request) admitStored(obj catalog.Object, opts request.WriteOptions) (catalog.Object, error) {
	if reason := rq.Endpoint.Info.CreateForbidden; reason != "" {
		return nil, apierrors.NewForbidden(rq.Endpoint.Info.GVR.GroupResource(), obj.GetName(), errors.New(reason))
	}
	stored := rq.Endpoint.Info.ToStored(obj)
	attributes := rq.AdmissionAttributes(admission.Create, stored, nil, opts.DryRun)
	if attributes.Name == "" {
		attributes.Name = obj.GetName()
	}
	if err := rq.API.Admission.Admit(rq.Ctx, attributes, rq.Trace.Stage); err != nil {
		return nil, err
	}
	rq.initialization.New = attributes.Initializers
	if err := rq.afterAdmit(stored); err != nil {
		return nil, err
	}
	return stored, rq.checkGuards(stored, nil)
}

// afterAdmit checks what mutating webhooks must not change: the object is still the one that the URL names.
func (rq *Request) afterAdmit(obj catalog.Object) error {
	rq.dedupOwnerReferences(obj, true)
	if rq.Route.Name != "" {
		return rq.checkName(obj)
	}
	return registry.EnsureNamespace(obj, rq.Route.Namespace)
}

// checkGuards asks the write guards of the resource, in order, whether the object may be written.
func (rq *Request) checkGuards(obj, old catalog.Object) error {
	for _, guard := range rq.Endpoint.WriteGuards {
		if err := guard(rq, obj, old); err != nil {
			return err
		}
	}
	return nil
}

// validateCreate returns the function that takes a new object through validating admission.
func (rq *Request) validateCreate(dryRun bool) func(context.Context, catalog.Object, catalog.Object) error {
	return func(ctx context.Context, obj, _ catalog.Object) error {
		return rq.API.Admission.Validate(ctx, rq.AdmissionAttributes(admission.Create, obj, nil, dryRun), rq.Trace.Stage)
	}
}

// validateUpdate returns the function that takes a changed object through validating admission; a new one if old is nil.
func (rq *Request) validateUpdate(dryRun bool) func(context.Context, catalog.Object, catalog.Object) error {
	return func(ctx context.Context, obj, old catalog.Object) error {
		if old == nil {
			return rq.validateCreate(dryRun)(ctx, obj, nil)
		}
		return rq.API.Admission.Validate(ctx, rq.AdmissionAttributes(admission.Update, obj, old, dryRun), rq.Trace.Stage)
	}
}

// update replaces an object, or the part of it that a subresource updates, with the one that the body has.
func (rq *Request) update() error {
	opts, err := rq.writeOptions("UpdateOptions", "")
	if err != nil {
		return err
	}
	rq.Trace.Stage("decode")
	body, err := rq.ReadBody()
	if err != nil {
		return err
	}
	decoded, err := rq.decodeUpdate(body, opts)
	if err != nil {
		return err
	}
	if err := rq.readInitializers(body); err != nil {
		return err
	}
	var uid *types.UID
	if u := decoded.GetUID(); u != "" {
		uid = &u
	}
	transform := func(_ context.Context, current catalog.Object) (catalog.Object, error) {
		obj := decoded
		decoded = nil // admission changes it: another try decodes the body again
		if obj == nil {
			var err error
			if obj, err = rq.decodeUpdate(body, opts); err != nil {
				return nil, err
			}
		}
		rq.setSentInitializers()
		return rq.admitUpdate(obj, current, opts)
	}
	stored := rq.Endpoint.Info.Stored
	it, created, err := rq.Endpoint.Registry.Update(rq.Ctx, registry.Update{
		Namespace: rq.Route.Namespace, Name: rq.Route.Name, Edit: rq.Endpoint.Edit(rq.Route.Subresource), Transform: transform, UID: uid,
		CreateMissing: stored.CreateOnUpdate && rq.Route.Subresource == "", Unconditional: stored.UnconditionalUpdate,
		Write: rq.RegistryWrite(opts.DryRun, rq.validateUpdate(opts.DryRun))})
	if err != nil {
		return err
	}
	return rq.sendWritten(it, created, opts.DryRun)
}

// decodeUpdate returns the object that the body of an update has, with its defaults.
func (rq *Request) decodeUpdate(body []byte, opts request.WriteOptions) (catalog.Object, error) {
	info := rq.Endpoint.Info
	obj := info.New().(catalog.Object)
	if err := rq.Decode(body, info.GVK, obj, opts.Strictness); err != nil {
		return nil, err
	}
	info.Default(obj)
	return obj, rq.checkName(obj)
}

// admitUpdate takes a changed object, in the version it was sent in, through managedFields, mutating admission and write guards, and returns it in its
// stored version. current, in its stored version, is nil if the object is to be created.
func (rq *Request) admitUpdate(obj, current catalog.Object, opts request.WriteOptions) (catalog.Object, error) {
	info := rq.Endpoint.Info
	if current == nil {
		if err := registry.EnsureNamespace(obj, rq.Route.Namespace); err != nil {
			return nil, err
		}
		return rq.admitCreate(obj, opts)
	}
	if rq.Route.Verb != "patch" {
		rq.dedupOwnerReferences(obj, false)
	}
	live := info.FromStored(current)
	rq.Trace.Stage("managed fields")
	manager, err := rq.fieldsManager()
	if err != nil {
		return nil, err
	}
	manager.Update(live, obj, rq.FieldManager(opts.Manager))
	return rq.admitMerged(obj, live, current, opts)
}

// admitMerged does the part of admitUpdate that follows managedFields.
func (rq *Request) admitMerged(obj, live, current catalog.Object, opts request.WriteOptions) (catalog.Object, error) {
	info := rq.Endpoint.Info
	if rq.Route.Subresource == "" {
		if errs := info.ValidateView(rq.Ctx, obj, live); len(errs) > 0 {
			return nil, apierrors.NewInvalid(info.GVK.GroupKind(), obj.GetName(), errs)
		}
	}
	stored := info.ToStored(obj)
	attributes := rq.AdmissionAttributes(admission.Update, stored, current, opts.DryRun)
	if err := rq.API.Admission.Admit(rq.Ctx, attributes, rq.Trace.Stage); err != nil {
		return nil, err
	}
	rq.initialization.New = attributes.Initializers
	if err := rq.afterAdmit(stored); err != nil {
		return nil, err
	}
	return stored, rq.checkGuards(stored, current)
}

// checkName refuses an object whose namespace or name is not that of the URL.
func (rq *Request) checkName(obj catalog.Object) error {
	if err := registry.EnsureNamespace(obj, rq.Route.Namespace); err != nil {
		return err
	}
	switch obj.GetName() {
	case rq.Route.Name:
		return nil
	case "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", rq.Route.Name))
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), rq.Route.Name))
	}
}

// dedupOwnerReferences removes duplicate owner references, and warns the client of them. admitted says that mutating admission has run.
func (rq *Request) dedupOwnerReferences(obj catalog.Object, admitted bool) {
	refs := obj.GetOwnerReferences()
	if len(refs) < 2 {
		return
	}
	kept := make([]metav1.OwnerReference, 0, len(refs))
	for _, ref := range refs {
		duplicate := false
		for _, k := range kept {
			if sameOwnerReference(k, ref) {
				duplicate = true
				when := ""
				if admitted {
					when = " after mutating admission happens"
				}
				rq.Warn(fmt.Sprintf(".metadata.ownerReferences contains duplicate entries"+when+"; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %v", ref.UID))
			}
		}
		if !duplicate {
			kept = append(kept, ref)
		}
	}
	obj.SetOwnerReferences(kept)
}

func sameOwnerReference(a, b metav1.OwnerReference) bool {
	same := func(p, q *bool) bool { return p == q || p != nil && q != nil && *p == *q }
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID && same(a.Controller, b.Controller) && same(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}

// writeOptions negotiates the form of the response and parses the write options of the request.
func (rq *Request) writeOptions(kind string, patch types.PatchType) (request.WriteOptions, error) {
	if err := rq.Negotiate(); err != nil {
		return request.WriteOptions{}, err
	}
	return request.ParseWriteOptions(rq.Query, kind, patch)
}

// sendWritten records a write and answers with the object: with 201 if it was created.
func (rq *Request) sendWritten(it *cache.Item, created, dryRun bool) error {
	rq.RecordWrite(it, dryRun)
	if created {
		var err error
		if it.Uninitialized && !dryRun && !rq.includeUninitialized() {
			if it, err = rq.waitInitialized(it); err != nil {
				return err
			}
		}
		return rq.SendItem(http.StatusCreated, it)
	}
	return rq.SendItem(http.StatusOK, it)
}

// RecordWrite records in the trace which revision this request has written, and warns the client if nothing in skiff enforces objects of this kind.
func (rq *Request) RecordWrite(it *cache.Item, dryRun bool) {
	if what := rq.Endpoint.Info.Unenforced; what != "" && rq.Route.Subresource == "" {
		rq.Warn("skiff does not enforce " + what + " yet: this object is stored and has no effect")
	}
	if !dryRun {
		rq.Trace.Named(it.Name)
		rq.Trace.Wrote(rq.Endpoint.Traced, it.UID, it.Revision)
	}
}
