package registry

import (
	"context"

	"skiff/internal/catalog"
	"skiff/internal/store"
)

type classKey struct{}

// WithClass returns a context whose writes are of a class, whatever they write.
func WithClass(ctx context.Context, class store.Class) context.Context {
	return context.WithValue(ctx, classKey{}, class)
}

// class returns how soon a write is refused as the database fills up: Events first. Writes that keep nodes and the control plane alive, and those that
// lead to the deletion of objects, are accepted until the quota is reached.
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

// isStepOfDeletion reports whether an update marks an object for deletion or removes a finalizer. Other updates of a terminating object do not count:
// there can be any number of them.
func isStepOfDeletion(obj, old catalog.Object) bool {
	if obj.GetDeletionTimestamp() == nil {
		return false
	}
	return old.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) < len(old.GetFinalizers())
}
