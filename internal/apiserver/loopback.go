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

// own is how authenticators, authorizers and admission plugins read and write what the server stores: see package objects.
type loopback struct {
	server    *Server
	resources map[schema.GroupResource]*verbs.Endpoint
	followed  map[schema.GroupResource]*following
}

var _ objects.Store = (*loopback)(nil)

func (s *Server) newLoopback() *loopback {
	l := &loopback{server: s, resources: map[schema.GroupResource]*verbs.Endpoint{}, followed: map[schema.GroupResource]*following{}}
	for gvr, end := range s.api.Endpoints {
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
		l.server.opts.Log.Error("a stored object cannot be decoded", "resource", r.Resource(), "key", it.Key, "error", err)
		return nil
	}
	return obj.(catalog.Object)
}

// Get is the object as the cache knows it.
func (l *loopback) Get(resource schema.GroupResource, namespace, name string) catalog.Object {
	r := l.registry(resource)
	it := r.Cache.Get(r.Key(namespace, name))
	if it == nil {
		return nil
	}
	return l.object(r, it)
}

// Fresh is the newest state of an object.
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

// List is the objects of a namespace.
func (l *loopback) List(resource schema.GroupResource, namespace string) []catalog.Object {
	r := l.registry(resource)
	if r.Cache.Len() == 0 { // as of quotas and limit ranges in most clusters, and those are asked for with every write
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
	return l.server.createLoopback(ctx, obj.DeepCopyObject().(catalog.Object))
}

// Update changes an object or a part of it.
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

// Delete removes an object.
func (l *loopback) Delete(ctx context.Context, resource schema.GroupResource, namespace, name string, uid types.UID) error {
	opts := &metav1.DeleteOptions{}
	if uid != "" {
		opts.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	_, _, err := l.registry(resource).Delete(ctx, namespace, name, opts, loopbackWrite())
	return err
}

// following is who wants to hear of the changes of one resource.
type following struct {
	registry *registry.Registry
	who      []follower
	known    map[string]*cache.Item // what they were told of last
	told     atomic.Int64           // the newest version they were told of
}

type follower struct {
	field   int // into Item.Fields: only objects that have it set; -1 for all
	changed func(before, after catalog.Object)
}

// Follow tells of all changes, beginning with what is there.
func (l *loopback) Follow(resource schema.GroupResource, changed func(before, after catalog.Object)) {
	l.follow(resource, follower{-1, changed})
}

// FollowWith tells of changes of objects that have a field set.
func (l *loopback) FollowWith(resource schema.GroupResource, field string, changed func(before, after catalog.Object)) {
	fields := l.resources[resource].Info.Fields
	l.follow(resource, follower{slices.IndexFunc(fields, func(f catalog.FieldInfo) bool { return f.Name == field }), changed})
}

func (l *loopback) follow(resource schema.GroupResource, who follower) {
	f := l.followed[resource]
	if f == nil {
		f = &following{registry: l.registry(resource), known: map[string]*cache.Item{}}
		l.followed[resource] = f
	}
	f.who = append(f.who, who)
}

// begin tells all followers of what is there and has them told of the rest. The caches are filled by now.
func (l *loopback) begin(ctx context.Context) {
	for _, f := range l.followed {
		cursor := l.resync(f)
		l.server.background.Go(func() { l.run(ctx, f, cursor) })
	}
}

// resync tells the difference between what was told and what is there.
func (l *loopback) resync(f *following) *cache.Cursor {
	snapshot, cursor := f.registry.Cache.SnapshotAndCursor()
	gone := maps.Clone(f.known)
	snapshot.Ascend("", "", func(it *cache.Item) bool {
		before := f.known[it.Key]
		delete(gone, it.Key)
		if before == nil || before.Revision != it.Revision {
			l.tell(f, it.Key, before, it)
		}
		return true
	})
	for key, before := range gone {
		l.tell(f, key, before, nil)
	}
	return cursor
}

func (l *loopback) run(ctx context.Context, f *following, cursor *cache.Cursor) {
	buffer := make([]*cache.Change, 0, 64)
	for {
		changes, err := cursor.Next(ctx, buffer[:0])
		switch {
		case errors.Is(err, cache.ErrTooOld):
			cursor = l.resync(f)
		case err != nil:
			return // the server stops
		}
		for _, change := range changes {
			after := change.Item
			if change.Type == cache.Deleted {
				after = nil
			}
			l.tell(f, change.Item.Key, f.known[change.Item.Key], after)
		}
	}
}

// tell tells followers of a change, decoding only what somebody wants.
func (l *loopback) tell(f *following, key string, before, after *cache.Item) {
	if after == nil {
		delete(f.known, key)
	} else {
		f.known[key] = after
		defer func() { f.told.Store(max(f.told.Load(), after.Revision)) }()
	}
	var old, obj catalog.Object
	for _, who := range f.who {
		had, has := who.wants(before), who.wants(after)
		if had && old == nil {
			old = l.object(f.registry, before)
		}
		if has && obj == nil {
			obj = l.object(f.registry, after)
		}
		switch {
		case had && has:
			who.changed(old, obj)
		case had:
			who.changed(old, nil)
		case has:
			who.changed(nil, obj)
		}
	}
}

// caughtUp waits until followers have been told of everything that was written before.
func (l *loopback) caughtUp(ctx context.Context) {
	if l.server.feed.Fresh(ctx) != nil {
		return // the server stops, or the store is not well: they will be told
	}
	for _, f := range l.followed {
		var newest int64
		f.registry.Cache.Snapshot().Ascend("", "", func(it *cache.Item) bool {
			newest = max(newest, it.Revision)
			return true
		})
		for f.told.Load() < newest && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
}

func (w follower) wants(it *cache.Item) bool {
	return it != nil && (w.field < 0 || it.Fields[w.field] != "")
}
