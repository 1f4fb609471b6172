package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apiserver/objects"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/cache"
	"skiff/internal/catalog"
)

// loopback is the server's own access to what it stores, for authenticators, authorizers, admission plugins and background loops: see package objects.
// Upstream uses a loopback client for it.
type loopback struct {
	server    *Server
	resources map[schema.GroupResource]*verbs.Endpoint
	followed  map[schema.GroupResource]*followedResource
}

var _ objects.Store = (*loopback)(nil)

// newLoopback returns the access to all stored resources. Kinds that most requests read are kept decoded from here on.
func (s *Server) newLoopback() *loopback {
	l := &loopback{server: s, resources: map[schema.GroupResource]*verbs.Endpoint{}, followed: map[schema.GroupResource]*followedResource{}}
	for gvr, end := range s.api.Served().Endpoints {
		if end.Registry != nil && end.Plain() {
			l.resources[gvr.GroupResource()] = end
			if end.Info.KeepDecoded {
				end.Registry.Cache.Share()
			}
		}
	}
	return l
}

func (l *loopback) registry(resource schema.GroupResource) *registry.Registry {
	return l.resources[resource].Registry
}

func (l *loopback) object(r *registry.Registry, it *cache.Item) catalog.Object {
	obj, err := r.Cache.Object(it)
	if err != nil {
		l.server.opts.Log.Error("failed to decode a stored object", "resource", r.Resource(), "key", it.Key, "error", err)
		return nil
	}
	return obj.(catalog.Object)
}

// Get returns an object from the cache; nil if there is none.
func (l *loopback) Get(resource schema.GroupResource, namespace, name string) catalog.Object {
	r := l.registry(resource)
	it := r.Cache.Get(r.Key(namespace, name))
	if it == nil {
		return nil
	}
	return l.object(r, it)
}

// Fresh returns the newest version of an object.
func (l *loopback) Fresh(ctx context.Context, resource schema.GroupResource, namespace, name string) (catalog.Object, error) {
	r := l.registry(resource)
	it, err := r.Get(ctx, namespace, name, "")
	if err != nil {
		return nil, err
	}
	obj, err := r.Cache.Object(it)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return obj.(catalog.Object), nil
}

// List returns the objects of a namespace from the cache; of all namespaces if it is empty.
func (l *loopback) List(resource schema.GroupResource, namespace string) []catalog.Object {
	r := l.registry(resource)
	if r.Cache.Len() == 0 { // as for ResourceQuotas and LimitRanges in most clusters, which every write lists
		return nil
	}
	prefix := ""
	if namespace != "" {
		prefix = namespace + "/"
	}
	var found []catalog.Object
	r.Cache.Snapshot().Ascend(prefix, "", func(it *cache.Item) bool {
		if obj := l.object(r, it); obj != nil {
			found = append(found, obj)
		}
		return true
	})
	return found
}

// Create stores a new object.
func (l *loopback) Create(ctx context.Context, _ schema.GroupResource, obj catalog.Object) error {
	return l.server.createObject(ctx, obj.DeepCopyObject().(catalog.Object))
}

// Update changes an object, or the part of it that a subresource updates.
func (l *loopback) Update(ctx context.Context, resource schema.GroupResource, subresource, namespace, name string, change func(catalog.Object) error) error {
	end := l.resources[resource]
	edit := end.Edit(subresource)
	if subresource != "" && edit == nil {
		return fmt.Errorf("%s has no subresource %s", resource, subresource)
	}
	_, _, err := end.Registry.Update(ctx, registry.Update{Namespace: namespace, Name: name, Edit: edit, Write: loopbackWrite(),
		Transform: func(_ context.Context, current catalog.Object) (catalog.Object, error) {
			return current, change(current)
		}})
	return err
}

// Delete deletes an object; if uid is set, only the one that has it.
func (l *loopback) Delete(ctx context.Context, resource schema.GroupResource, namespace, name string, uid types.UID) error {
	opts := &metav1.DeleteOptions{}
	if uid != "" {
		opts.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	_, _, err := l.registry(resource).Delete(ctx, namespace, name, opts, loopbackWrite())
	return err
}

// followedResource has the followers of one resource, and what was delivered to them.
type followedResource struct {
	registry          *registry.Registry
	followers         []follower
	delivered         map[string]*cache.Item // the version of each object that was delivered last, by key
	deliveredRevision atomic.Int64           // the newest revision that was delivered
}

type follower struct {
	field   int // index into Item.Fields: only objects that have this field set are delivered; -1 for all objects
	changed func(before, after catalog.Object)
}

// Follow calls changed for all objects of a resource, and then for all changes. It must be called before begin.
func (l *loopback) Follow(resource schema.GroupResource, changed func(before, after catalog.Object)) {
	l.follow(resource, follower{-1, changed})
}

// FollowWith is Follow for the objects that have a field set.
func (l *loopback) FollowWith(resource schema.GroupResource, field string, changed func(before, after catalog.Object)) {
	fields := l.resources[resource].Info.Fields
	l.follow(resource, follower{slices.IndexFunc(fields, func(f catalog.FieldInfo) bool { return f.Name == field }), changed})
}

func (l *loopback) follow(resource schema.GroupResource, one follower) {
	f := l.followed[resource]
	if f == nil {
		f = &followedResource{registry: l.registry(resource), delivered: map[string]*cache.Item{}}
		l.followed[resource] = f
	}
	f.followers = append(f.followers, one)
}

// begin delivers all objects to their followers, and starts delivering changes. The caches must be synced.
func (l *loopback) begin(ctx context.Context) {
	for _, f := range l.followed {
		cursor := l.resync(f)
		l.server.background.Go(func() { l.run(ctx, f, cursor) })
	}
}

// resync delivers the difference between what was delivered and what the cache has, and returns a cursor for the changes after that.
func (l *loopback) resync(f *followedResource) *cache.Cursor {
	snapshot, cursor := f.registry.Cache.SnapshotAndCursor()
	removed := maps.Clone(f.delivered)
	snapshot.Ascend("", "", func(it *cache.Item) bool {
		before := f.delivered[it.Key]
		delete(removed, it.Key)
		if before == nil || before.Revision != it.Revision {
			l.deliver(f, it.Key, before, it)
		}
		return true
	})
	for key, before := range removed {
		l.deliver(f, key, before, nil)
	}
	return cursor
}

// run delivers the changes of a resource to its followers, until ctx ends.
func (l *loopback) run(ctx context.Context, f *followedResource, cursor *cache.Cursor) {
	buffer := make([]*cache.Change, 0, 64)
	for {
		changes, err := cursor.Next(ctx, buffer[:0])
		switch {
		case errors.Is(err, cache.ErrTooOld):
			cursor = l.resync(f)
		case err != nil:
			return // the server is stopping
		}
		for _, change := range changes {
			after := change.Item
			if change.Type == cache.Deleted || after.Uninitialized {
				after = nil
			}
			if after == nil && f.delivered[change.Item.Key] == nil {
				continue // the object was not initialized
			}
			l.deliver(f, change.Item.Key, f.delivered[change.Item.Key], after)
		}
	}
}

// deliver calls the followers of a resource for a change. It decodes only what a follower selects.
func (l *loopback) deliver(f *followedResource, key string, before, after *cache.Item) {
	if after == nil {
		delete(f.delivered, key)
	} else {
		f.delivered[key] = after
		defer func() { f.deliveredRevision.Store(max(f.deliveredRevision.Load(), after.Revision)) }()
	}
	var old, obj catalog.Object
	for _, one := range f.followers {
		had, has := one.selects(before), one.selects(after)
		if had && old == nil {
			old = l.object(f.registry, before)
		}
		if has && obj == nil {
			obj = l.object(f.registry, after)
		}
		switch {
		case had && has:
			one.changed(old, obj)
		case had:
			one.changed(old, nil)
		case has:
			one.changed(nil, obj)
		}
	}
}

// waitForFollowers waits until everything that was written before has been delivered to followers.
func (l *loopback) waitForFollowers(ctx context.Context) {
	if l.server.feed.Fresh(ctx) != nil {
		return // the server is stopping, or the store is unavailable: changes are delivered later
	}
	for _, f := range l.followed {
		var newest int64
		f.registry.Cache.Snapshot().Ascend("", "", func(it *cache.Item) bool {
			newest = max(newest, it.Revision)
			return true
		})
		for f.deliveredRevision.Load() < newest && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
}

func (w follower) selects(it *cache.Item) bool {
	return it != nil && (w.field < 0 || it.Fields[w.field] != "")
}
