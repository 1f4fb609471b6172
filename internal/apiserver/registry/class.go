package registry

import (
	"context"

	"skiff/internal/catalog"
	"skiff/internal/store"
)

type classKey struct{}

// WithClass has the writes of a context be of a class, whatever is written.
func WithClass(ctx context.Context, class store.Class) context.Context {
	return context.WithValue(ctx, classKey{}, class)
}

// class says how soon a write is refused as the database fills up. Events go first. What keeps nodes and control plane alive, and
// what leads to objects being deleted, goes on until the quota is reached.
func (r *Registry) class(ctx context.Context, obj, old catalog.Object) store.Class {
	if class, ok := ctx.Value(classKey{}).(store.Class); ok {
		return class
	}
	switch {
	case old != nil && isStepOfDeletion(obj, old):
		return store.Critical
	case r.Info.Expires:
		return store.Disposable
	case r.Info.Critical != nil && r.Info.Critical(obj):
		return store.Critical
	}
	return store.Ordinary
}

// isStepOfDeletion is true of an update that marks an object for deletion or removes a finalizer. Other updates of a terminating
// object are not: their number has no bound.
func isStepOfDeletion(obj, old catalog.Object) bool {
	if obj.GetDeletionTimestamp() == nil {
		return false
	}
	return old.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) < len(old.GetFinalizers())
}
