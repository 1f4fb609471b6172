package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/registry"
	"skiff/internal/cache"
	"skiff/internal/catalog"
)

// create stores the object in the body.
func (rq *request) create() error {
	opts, err := rq.writeOptions("CreateOptions", "")
	if err != nil {
		return err
	}
	rq.trace.Stage("decode")
	body, err := rq.body()
	if err != nil {
		return err
	}
	obj := rq.end.info.New().(catalog.Object)
	if err := rq.decode(body, rq.end.info.GVK, obj, opts.strictness); err != nil {
		return err
	}
	if obj.GetResourceVersion() != "" && obj.GetResourceVersion() != "0" {
		return fmt.Errorf("resourceVersion should not be set on objects to be created")
	}
	rq.end.info.Default(obj)
	if err := registry.EnsureNamespace(obj, rq.route.namespace); err != nil {
		return err
	}
	obj, err = rq.admitCreate(obj, opts)
	if err != nil {
		return err
	}
	it, err := rq.end.registry.Create(rq.ctx, obj, rq.write(opts.dryRun, rq.validateCreate(opts.dryRun)))
	if err != nil {
		return err
	}
	rq.wrote(it, opts.dryRun)
	return rq.answer(http.StatusCreated, it)
}

// admitCreate does to a new object, in the form it was sent in, what happens before it is validated, and returns its stored form.
func (rq *request) admitCreate(obj catalog.Object, opts writeOptions) (catalog.Object, error) {
	info := rq.end.info
	if errs := info.ValidateView(obj, nil); len(errs) > 0 {
		return nil, apierrors.NewInvalid(info.GVK.GroupKind(), obj.GetName(), errs)
	}
	if rq.route.verb != "patch" {
		rq.dedupOwners(obj)
	}
	registry.FillSystemMetadata(obj, time.Now()) // what the client says of these is nobody's
	rq.trace.Stage("managed fields")
	manager, err := rq.end.manager(rq.route.subresource)
	if err != nil {
		return nil, err
	}
	manager.Create(obj, rq.manager(opts.manager))
	return rq.admitStored(obj, opts)
}

// admitStored goes on where managed fields of a new object are set.
func (rq *request) admitStored(obj catalog.Object, opts writeOptions) (catalog.Object, error) {
	stored := rq.end.info.ToStored(obj)
	rq.dedupOwners(stored)
	attributes := rq.admission(admission.Create, stored, nil, opts.dryRun)
	if attributes.Name == "" {
		attributes.Name = obj.GetName()
	}
	if err := rq.server.admission.Admit(rq.ctx, attributes, rq.trace.Stage); err != nil {
		return nil, err
	}
	return stored, rq.mayWrite(stored, nil)
}

// mayWrite asks whoever guards the resource.
func (rq *request) mayWrite(obj, old catalog.Object) error {
	if rq.end.mayWrite == nil {
		return nil
	}
	return rq.end.mayWrite(rq, obj, old)
}

func (rq *request) validateCreate(dryRun bool) func(context.Context, catalog.Object, catalog.Object) error {
	return func(ctx context.Context, obj, _ catalog.Object) error {
		return rq.server.admission.Validate(ctx, rq.admission(admission.Create, obj, nil, dryRun), rq.trace.Stage)
	}
}

func (rq *request) validateUpdate(dryRun bool) func(context.Context, catalog.Object, catalog.Object) error {
	return func(ctx context.Context, obj, old catalog.Object) error {
		if old == nil {
			return rq.validateCreate(dryRun)(ctx, obj, nil)
		}
		return rq.server.admission.Validate(ctx, rq.admission(admission.Update, obj, old, dryRun), rq.trace.Stage)
	}
}

// update replaces an object, or a part of it, with the body.
func (rq *request) update() error {
	opts, err := rq.writeOptions("UpdateOptions", "")
	if err != nil {
		return err
	}
	rq.trace.Stage("decode")
	body, err := rq.body()
	if err != nil {
		return err
	}
	info := rq.end.info
	decode := func() (catalog.Object, error) {
		obj := info.New().(catalog.Object)
		if err := rq.decode(body, info.GVK, obj, opts.strictness); err != nil {
			return nil, err
		}
		info.Default(obj)
		return obj, rq.checkName(obj)
	}
	first, err := decode()
	if err != nil {
		return err
	}
	var uid *types.UID
	if u := first.GetUID(); u != "" {
		uid = &u
	}
	transform := func(ctx context.Context, current catalog.Object) (catalog.Object, error) {
		obj := first
		if obj == nil { // a retry: the first attempt has had its object
			if obj, err = decode(); err != nil {
				return nil, err
			}
		}
		first = nil
		return rq.admitUpdate(obj, current, opts)
	}
	it, created, err := rq.end.registry.Update(rq.ctx, registry.Update{
		Namespace: rq.route.namespace, Name: rq.route.name, Edit: rq.end.edit(rq.route.subresource), Transform: transform, UID: uid,
		CreateMissing: info.Stored.CreateOnUpdate && rq.route.subresource == "", Unconditional: info.Stored.UnconditionalUpdate,
		Write: rq.write(opts.dryRun, rq.validateUpdate(opts.dryRun))})
	if err != nil {
		return err
	}
	return rq.answerWrite(it, created, opts.dryRun)
}

// admitUpdate does to a changed object, in the form it was sent in, what happens before it is validated, and returns its stored
// form. current, which is stored, is nil if the object is to be created.
func (rq *request) admitUpdate(obj, current catalog.Object, opts writeOptions) (catalog.Object, error) {
	info := rq.end.info
	if current == nil {
		if err := registry.EnsureNamespace(obj, rq.route.namespace); err != nil {
			return nil, err
		}
		return rq.admitCreate(obj, opts)
	}
	if rq.route.verb != "patch" {
		rq.dedupOwners(obj)
	}
	live := info.FromStored(current)
	rq.trace.Stage("managed fields")
	manager, err := rq.end.manager(rq.route.subresource)
	if err != nil {
		return nil, err
	}
	manager.Update(live, obj, rq.manager(opts.manager))
	return rq.admitMerged(obj, live, current, opts)
}

// admitMerged goes on where managed fields are up to date.
func (rq *request) admitMerged(obj, live, current catalog.Object, opts writeOptions) (catalog.Object, error) {
	info := rq.end.info
	if rq.route.subresource == "" {
		if errs := info.ValidateView(obj, live); len(errs) > 0 {
			return nil, apierrors.NewInvalid(info.GVK.GroupKind(), obj.GetName(), errs)
		}
	}
	stored := info.ToStored(obj)
	rq.dedupOwners(stored)
	if err := rq.server.admission.Admit(rq.ctx, rq.admission(admission.Update, stored, current, opts.dryRun), rq.trace.Stage); err != nil {
		return nil, err
	}
	return stored, rq.mayWrite(stored, current)
}

// checkName compares what a body says of its namespace and name with the URL.
func (rq *request) checkName(obj catalog.Object) error {
	if err := registry.EnsureNamespace(obj, rq.route.namespace); err != nil {
		return err
	}
	switch obj.GetName() {
	case rq.route.name:
		return nil
	case "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", rq.route.name))
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), rq.route.name))
	}
}

// dedupOwners removes owner references given twice.
func (rq *request) dedupOwners(obj catalog.Object) {
	refs := obj.GetOwnerReferences()
	if len(refs) < 2 {
		return
	}
	kept := make([]metav1.OwnerReference, 0, len(refs))
	for _, ref := range refs {
		twice := false
		for _, k := range kept {
			if sameOwner(k, ref) {
				twice = true
				when := ""
				if rq.route.verb == "patch" {
					when = " after mutating admission happens"
				}
				rq.warn(fmt.Sprintf(".metadata.ownerReferences contains duplicate entries"+when+"; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %v", ref.UID))
			}
		}
		if !twice {
			kept = append(kept, ref)
		}
	}
	obj.SetOwnerReferences(kept)
}

func sameOwner(a, b metav1.OwnerReference) bool {
	same := func(p, q *bool) bool { return p == q || p != nil && q != nil && *p == *q }
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID && same(a.Controller, b.Controller) && same(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}

func (rq *request) writeOptions(kind string, patch types.PatchType) (writeOptions, error) {
	if err := rq.negotiate(); err != nil {
		return writeOptions{}, err
	}
	return parseWriteOptions(rq.query, kind, patch)
}

func (rq *request) answerWrite(it *cache.Item, created, dryRun bool) error {
	rq.wrote(it, dryRun)
	if created {
		return rq.answer(http.StatusCreated, it)
	}
	return rq.answer(http.StatusOK, it)
}

// wrote tells the trace which version this request made, and the client if nothing does what the object asks for.
func (rq *request) wrote(it *cache.Item, dryRun bool) {
	if what := rq.end.info.Unenforced; what != "" && rq.route.subresource == "" {
		rq.warn("skiff does not enforce " + what + " yet: this object is stored and has no effect")
	}
	if !dryRun {
		rq.trace.Named(it.Name)
		rq.trace.Wrote(rq.end.traced, it.UID, it.Revision)
	}
}
