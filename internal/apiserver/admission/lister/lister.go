package lister

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

// Namespaced lists the objects of a resource by namespace.
type Namespaced[T any] struct {
	mu          sync.RWMutex
	byNamespace map[string]content[T]
	listCache   func(namespace string) []T // lists the API server's cache
}

// content is what is kept of one namespace, sorted by name. Its slices are never changed, only replaced.
type content[T any] struct {
	names  []string
	values []T
}

// ByNamespace returns a lister of a resource. prepare returns what is kept of an object, which it must not change.
func ByNamespace[O catalog.Object, T any](r objects.Reader, resource schema.GroupResource, prepare func(O) T) *Namespaced[T] {
	n := &Namespaced[T]{byNamespace: map[string]content[T]{}}
	n.listCache = func(namespace string) (found []T) {
		for _, obj := range r.List(resource, namespace) {
			if obj, ok := obj.(O); ok {
				found = append(found, prepare(obj))
			}
		}
		return found
	}
	r.Follow(resource, func(before, after catalog.Object) {
		if obj, ok := after.(O); ok {
			n.set(obj.GetNamespace(), obj.GetName(), prepare(obj))
		} else if before != nil {
			n.remove(before.GetNamespace(), before.GetName())
		}
	})
	return n
}

func (n *Namespaced[T]) set(namespace, name string, value T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.byNamespace[namespace]
	at, known := slices.BinarySearch(c.names, name)
	c.values = slices.Clone(c.values)
	if known {
		c.values[at] = value
	} else {
		c.names, c.values = slices.Insert(slices.Clone(c.names), at, name), slices.Insert(c.values, at, value)
	}
	n.byNamespace[namespace] = c
}

func (n *Namespaced[T]) remove(namespace, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.byNamespace[namespace]
	at, known := slices.BinarySearch(c.names, name)
	switch {
	case !known:
	case len(c.names) == 1:
		delete(n.byNamespace, namespace)
	default:
		n.byNamespace[namespace] = content[T]{slices.Delete(slices.Clone(c.names), at, at+1), slices.Delete(slices.Clone(c.values), at, at+1)}
	}
}

// List returns what is kept of a namespace, sorted by name. The slice is shared and must not be changed. Events arrive a moment after the object is
// in the cache, so a namespace without observed objects is listed from the cache, as upstream does: its first object takes effect at once.
func (n *Namespaced[T]) List(namespace string) []T {
	n.mu.RLock()
	known := n.byNamespace[namespace].values
	n.mu.RUnlock()
	if len(known) == 0 {
		return n.listCache(namespace)
	}
	return known
}

// Chosen keeps the one object of a resource that is preferred to all others, such as the default class.
type Chosen[O catalog.Object] struct{ best atomic.Pointer[O] }

// Choose returns a lister of the preferred object of a cluster-scoped resource. candidate reports which objects qualify; compare orders them, the preferred first.
func Choose[O catalog.Object](r objects.Reader, resource schema.GroupResource, candidate func(O) bool, compare func(a, b O) int) *Chosen[O] {
	c, candidates := &Chosen[O]{}, map[string]O{}
	r.Follow(resource, func(before, after catalog.Object) { // calls are sequential: the map needs no lock
		if before != nil {
			delete(candidates, before.GetName())
		}
		if obj, ok := after.(O); ok && candidate(obj) {
			candidates[obj.GetName()] = obj
		}
		var best *O
		for _, obj := range candidates {
			if best == nil || compare(obj, *best) < 0 {
				best = &obj
			}
		}
		c.best.Store(best)
	})
	return c
}

// Get returns the preferred object; ok is false if there is none.
func (c *Chosen[O]) Get() (obj O, ok bool) {
	if best := c.best.Load(); best != nil {
		return *best, true
	}
	return obj, false
}

// NewestFirst orders objects by creation time, the newest first, and objects of the same time by name.
func NewestFirst[O catalog.Object](a, b O) int {
	return cmp.Or(b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
}
