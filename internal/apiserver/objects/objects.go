package objects

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/catalog"
)

// Reader reads objects. They are shared and must be copied before they are changed.
type Reader interface {
	// Get returns the object from the cache, nil if the cache does not have it.
	Get(resource schema.GroupResource, namespace, name string) catalog.Object
	// Fresh returns the newest state of the object, from the store if need be, or a NotFound error.
	Fresh(ctx context.Context, resource schema.GroupResource, namespace, name string) (catalog.Object, error)
	// List returns the cached objects of a namespace, or of all if it is empty, sorted by namespace and name.
	List(resource schema.GroupResource, namespace string) []catalog.Object
	// Follow registers an event handler, like an informer's. changed is called for every existing object and then for every change:
	// before is nil for an added object, after is nil for a deleted one. Calls for one resource are sequential and in order, a moment
	// after the change. Follow must be called before the server is ready; the server is ready when every handler has synced.
	Follow(resource schema.GroupResource, changed func(before, after catalog.Object))
	// FollowWith is Follow for objects in which the field, one that field selectors support, is set, such as pods with spec.nodeName.
	// Other objects may be treated as if they did not exist.
	FollowWith(resource schema.GroupResource, field string, changed func(before, after catalog.Object))
}

// Writer writes objects on behalf of the server itself.
type Writer interface {
	// Create stores a new object.
	Create(ctx context.Context, resource schema.GroupResource, obj catalog.Object) error
	// Update changes an object, or the part of it that a subresource such as "status" covers. change gets a copy of the newest state,
	// and is called again after a conflict; an error that it returns ends the update and is returned.
	Update(ctx context.Context, resource schema.GroupResource, subresource, namespace, name string, change func(catalog.Object) error) error
	// Delete deletes an object. It returns NotFound, or Conflict if uid is not empty and the object has another UID.
	Delete(ctx context.Context, resource schema.GroupResource, namespace, name string, uid types.UID) error
}

// Store reads and writes objects.
type Store interface {
	Reader
	Writer
}
