// Package followed keeps what admission plugins need to know of every write at hand, prepared as they want it, so that a write that
// a plugin has nothing to say about costs it one look into a map.
package followed

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

// Namespaced keeps the objects of a resource by namespace.
type Namespaced[T any] struct {
	mu   sync.RWMutex
	in   map[string]content[T]
	look func(namespace string) []T
}

// content is what is kept of one namespace. Its lists are never changed, only replaced.
type content[T any] struct {
	names  []string
	values []T
}

// ByNamespace follows a resource. prepare makes of an object what is kept; it must not change the object.
func ByNamespace[O catalog.Object, T any](r objects.Reader, resource schema.GroupResource, prepare func(O) T) *Namespaced[T] {
	n := &Namespaced[T]{in: map[string]content[T]{}}
	n.look = func(namespace string) (found []T) {
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
	c := n.in[namespace]
	at, known := slices.BinarySearch(c.names, name)
	c.values = slices.Clone(c.values)
	if known {
		c.values[at] = value
	} else {
		c.names, c.values = slices.Insert(slices.Clone(c.names), at, name), slices.Insert(c.values, at, value)
	}
	n.in[namespace] = c
}

func (n *Namespaced[T]) remove(namespace, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.in[namespace]
	at, known := slices.BinarySearch(c.names, name)
	switch {
	case !known:
	case len(c.names) == 1:
		delete(n.in, namespace)
	default:
		n.in[namespace] = content[T]{slices.Delete(slices.Clone(c.names), at, at+1), slices.Delete(slices.Clone(c.values), at, at+1)}
	}
}

// In returns what is kept of a namespace, by name. The list is shared: it must not be changed. Followers hear of an object a moment after it is there, so
// where none is known it is looked for, as upstream does: the first one of a namespace counts from the start.
func (n *Namespaced[T]) In(namespace string) []T {
	n.mu.RLock()
	known := n.in[namespace].values
	n.mu.RUnlock()
	if len(known) == 0 {
		return n.look(namespace)
	}
	return known
}

// Chosen keeps the one object of a resource that is preferred to all others.
type Chosen[O catalog.Object] struct{ best atomic.Pointer[O] }

// Choose follows a resource without namespaces. candidate says which objects count at all; compare orders them, the preferred first.
func Choose[O catalog.Object](r objects.Reader, resource schema.GroupResource, candidate func(O) bool, compare func(a, b O) int) *Chosen[O] {
	c, candidates := &Chosen[O]{}, map[string]O{}
	r.Follow(resource, func(before, after catalog.Object) { // one call at a time: the map needs no lock
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

// Get returns the preferred object, if there is any.
func (c *Chosen[O]) Get() (obj O, ok bool) {
	if best := c.best.Load(); best != nil {
		return *best, true
	}
	return obj, false
}

// NewestFirst orders objects by age, the newest first, and those of the same age by name.
func NewestFirst[O catalog.Object](a, b O) int {
	return cmp.Or(b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
}
