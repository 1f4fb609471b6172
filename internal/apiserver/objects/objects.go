// Package objects is how the parts of the API server that decide about requests (authenticators, authorizers, admission plugins) read
// and write what the server itself stores. Reads come from the caches and cost no request; writes are the server's own, past
// authorization and admission but with the resource's defaults and validation.
package objects

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/catalog"
)

// Reader reads. The objects are shared by everybody: whoever wants to change one makes a copy.
type Reader interface {
	// Get returns the object as the cache knows it, or nil if there is none.
	Get(resource schema.GroupResource, namespace, name string) catalog.Object
	// Fresh returns the newest state of the object, or a NotFound error.
	Fresh(ctx context.Context, resource schema.GroupResource, namespace, name string) (catalog.Object, error)
	// List returns the objects of a namespace, or of all if it is empty, by namespace and name.
	List(resource schema.GroupResource, namespace string) []catalog.Object
	// Follow calls changed for every object there is, with nothing before it, and then for every change: before is nil for a new
	// object, after is nil for one that is gone. Calls for one resource come one at a time and in order, a moment after the change.
	// Follow is called before the server is ready; the server is ready when every follower has been told of all there was.
	Follow(resource schema.GroupResource, changed func(before, after catalog.Object))
	// FollowWith does the same for those who care only about objects in which a field that selectors know is set, such as pods with
	// spec.nodeName: others may be left out as if they were not there.
	FollowWith(resource schema.GroupResource, field string, changed func(before, after catalog.Object))
}

// Writer writes on the server's own behalf.
type Writer interface {
	// Create stores a new object.
	Create(ctx context.Context, resource schema.GroupResource, obj catalog.Object) error
	// Update changes an object, or the part of it that a subresource such as "status" has. change gets a copy of the newest state to
	// change, and is called again if somebody else was faster; what it returns as error ends the update and comes back.
	Update(ctx context.Context, resource schema.GroupResource, subresource, namespace, name string, change func(catalog.Object) error) error
	// Delete removes an object, or says NotFound. It says Conflict if uid is not empty and the object has another.
	Delete(ctx context.Context, resource schema.GroupResource, namespace, name string, uid types.UID) error
}

// Store reads and writes.
type Store interface {
	Reader
	Writer
}
