package registry

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/catalog"
)

// Hooks are called by the writes of a resource, beside the generic steps. All are optional.
type Hooks struct {
	// BeginCreate is called with an object that is to be created, before it is validated. It may change the object. finish is called with whether the
	// object was stored, unless the outcome of the write is unknown.
	BeginCreate func(ctx context.Context, obj catalog.Object, dryRun bool) (finish func(stored bool), err error)
	// BeginUpdate is called with an object that is to replace old, before it is validated, unless the update comes through a subresource. finish is as
	// for BeginCreate.
	BeginUpdate func(ctx context.Context, obj, old catalog.Object, dryRun bool) (finish func(stored bool), err error)
	// AfterDelete is called when an object has been removed from the store.
	AfterDelete func(ctx context.Context, obj catalog.Object)
}

// AddHooks adds hooks after those that were added before. It must not be called once the registry is in use.
func (r *Registry) AddHooks(h Hooks) { r.hooks = append(r.hooks, h) }

// begunHooks are the finish functions of hooks that have begun, in order.
type begunHooks []func(stored bool)

func (r *Registry) beginCreate(ctx context.Context, obj catalog.Object, dryRun bool) (begunHooks, error) {
	var begun begunHooks
	for _, h := range r.hooks {
		if h.BeginCreate == nil {
			continue
		}
		finish, err := h.BeginCreate(ctx, obj, dryRun)
		if err != nil {
			begun.finish(err, dryRun)
			return nil, err
		}
		begun = append(begun, finish)
	}
	return begun, nil
}

func (r *Registry) beginUpdate(ctx context.Context, obj, old catalog.Object, dryRun bool) (begunHooks, error) {
	var begun begunHooks
	for _, h := range r.hooks {
		if h.BeginUpdate == nil {
			continue
		}
		finish, err := h.BeginUpdate(ctx, obj, old, dryRun)
		if err != nil {
			begun.finish(err, dryRun)
			return nil, err
		}
		begun = append(begun, finish)
	}
	return begun, nil
}

// finish calls the finish functions, the last first, with whether the write was stored. It does nothing if that is unknown.
func (b begunHooks) finish(err error, dryRun bool) {
	if outcomeUnknown(err) {
		return
	}
	for i := len(b) - 1; i >= 0; i-- {
		b[i](err == nil && !dryRun)
	}
}

// outcomeUnknown reports whether a write may have happened although it failed: see failure.
func outcomeUnknown(err error) bool { return apierrors.IsTimeout(err) }

func (r *Registry) afterDelete(ctx context.Context, obj catalog.Object) {
	for _, h := range r.hooks {
		if h.AfterDelete != nil {
			h.AfterDelete(ctx, obj)
		}
	}
}
