package objectstest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

// Store is an in-memory objects.Store. Event handlers are called before the write returns.
type Store struct {
	mu        sync.Mutex
	revision  int64
	objects   map[schema.GroupResource]map[string]catalog.Object
	followers map[schema.GroupResource][]func(before, after catalog.Object)
}

var _ objects.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	return &Store{objects: map[schema.GroupResource]map[string]catalog.Object{}, followers: map[schema.GroupResource][]func(before, after catalog.Object){}}
}

func key(namespace, name string) string { return namespace + "/" + name }

// Get returns an object, nil if it does not exist.
func (s *Store) Get(resource schema.GroupResource, namespace, name string) catalog.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[resource][key(namespace, name)]
}

// Fresh returns an object or a NotFound error.
func (s *Store) Fresh(_ context.Context, resource schema.GroupResource, namespace, name string) (catalog.Object, error) {
	if obj := s.Get(resource, namespace, name); obj != nil {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(resource, name)
}

// List returns the objects of a namespace, or of all, sorted.
func (s *Store) List(resource schema.GroupResource, namespace string) []catalog.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []catalog.Object
	for _, k := range slices.Sorted(maps.Keys(s.objects[resource])) {
		if obj := s.objects[resource][k]; namespace == "" || obj.GetNamespace() == namespace {
			found = append(found, obj)
		}
	}
	return found
}

// Follow calls changed for all existing objects and for all changes.
func (s *Store) Follow(resource schema.GroupResource, changed func(before, after catalog.Object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers[resource] = append(s.followers[resource], changed)
	for _, k := range slices.Sorted(maps.Keys(s.objects[resource])) {
		changed(nil, s.objects[resource][k])
	}
}

// FollowWith is the same as Follow.
func (s *Store) FollowWith(resource schema.GroupResource, _ string, changed func(before, after catalog.Object)) {
	s.Follow(resource, changed)
}

// Put creates or replaces an object.
func (s *Store) Put(resource schema.GroupResource, obj catalog.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(resource, obj)
}

func (s *Store) put(resource schema.GroupResource, obj catalog.Object) {
	all := s.objects[resource]
	if all == nil {
		all = map[string]catalog.Object{}
		s.objects[resource] = all
	}
	s.revision++
	obj.SetResourceVersion(strconv.FormatInt(s.revision, 10))
	before := all[key(obj.GetNamespace(), obj.GetName())]
	all[key(obj.GetNamespace(), obj.GetName())] = obj
	for _, changed := range s.followers[resource] {
		changed(before, obj)
	}
}

// Remove removes an object.
func (s *Store) Remove(resource schema.GroupResource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.objects[resource][key(namespace, name)]
	if before == nil {
		return
	}
	delete(s.objects[resource], key(namespace, name))
	for _, changed := range s.followers[resource] {
		changed(before, nil)
	}
}

// Create stores a new object.
func (s *Store) Create(_ context.Context, resource schema.GroupResource, obj catalog.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[resource][key(obj.GetNamespace(), obj.GetName())] != nil {
		return apierrors.NewAlreadyExists(resource, obj.GetName())
	}
	s.put(resource, obj)
	return nil
}

// Update changes an object. It ignores the subresource.
func (s *Store) Update(_ context.Context, resource schema.GroupResource, _, namespace, name string, change func(catalog.Object) error) error {
	for {
		current := s.Get(resource, namespace, name)
		if current == nil {
			return apierrors.NewNotFound(resource, name)
		}
		obj, ok := current.DeepCopyObject().(catalog.Object)
		if !ok {
			return fmt.Errorf("%T is no object", current)
		}
		if err := change(obj); err != nil {
			return err
		}
		s.mu.Lock()
		if latest := s.objects[resource][key(namespace, name)]; latest != nil && latest.GetResourceVersion() == current.GetResourceVersion() {
			s.put(resource, obj)
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
	}
}

// Delete deletes an object, if it has the UID.
func (s *Store) Delete(_ context.Context, resource schema.GroupResource, namespace, name string, uid types.UID) error {
	switch obj := s.Get(resource, namespace, name); {
	case obj == nil:
		return apierrors.NewNotFound(resource, name)
	case uid != "" && obj.GetUID() != uid:
		return apierrors.NewConflict(resource, name, fmt.Errorf("the uid is %s, not %s", obj.GetUID(), uid))
	}
	s.Remove(resource, namespace, name)
	return nil
}
