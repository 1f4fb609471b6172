package cache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"skiff/internal/store"
)

// The objects of an uncached kind are only in the store: there may be many of them, and nothing in this process watches them. Upstream
// has one such kind, Events. The cache keeps the latest changes, in a smaller ring, for watchers; the previous version of a changed object
// is read from the store by the first watcher that needs it.

// uncachedRing is smaller than the ring of other kinds: a watcher that falls behind reads the store's history, which costs an uncached kind
// no memory. The bound in bytes holds for all changes but the last.
var uncachedRing = ringBounds{min: 1, max: 1024, bytes: 2 << 20}

// unreadPrev stands for the previous version of a changed object of an uncached kind.
type unreadPrev struct {
	readMu   sync.Mutex             // held while the previous version is read
	readDone bool                   // whether the previous version was read; guarded by readMu
	complete atomic.Pointer[Change] // the change with its previous version, once that was read

	// The cache's lock guards these.
	inRing    bool   // whether the change is one of the cache's ring
	seq       uint64 // the change's sequence in the ring
	heldBytes int    // size of what was read, which the ring accounts for
}

// NewUncachedChange returns the change of an uncached kind for an event of the store. it is the object, nil if it was deleted.
//
// The previous version is missing: Prev of a modified object is the object itself, which is right for a watcher that selects by name or namespace, and
// Item of a deleted one has nothing but its key and the revision. Cache.Complete adds the previous version.
func NewUncachedChange(key string, it *Item, e store.Event) *Change {
	switch {
	case e.Deleted:
		deleted := &Item{Key: key, Name: key, Revision: e.Revision}
		if namespace, name, ok := strings.Cut(key, "/"); ok {
			deleted.Namespace, deleted.Name = namespace, name
		}
		return &Change{Type: Deleted, Item: deleted, unreadPrev: &unreadPrev{}}
	case e.Created:
		return &Change{Type: Added, Item: it}
	default:
		return &Change{Type: Modified, Item: it, Prev: it, unreadPrev: &unreadPrev{}}
	}
}

// applyUncached applies one event of the store to the cache of an uncached kind. Only the feed calls it.
func (c *Cache) applyUncached(key string, it *Item, e store.Event) *Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uncached.count(e)
	c.lastApplied = e.Revision
	if it == nil && !e.Deleted { // the object cannot be decoded
		return nil
	}
	change := NewUncachedChange(key, it, e)
	if u := change.unreadPrev; u != nil {
		u.inRing, u.seq = true, c.ring.next
	}
	c.ring.add(change)
	c.topics.publish(change, &c.ring)
	return change
}

// replaceUncached restarts the cache at a revision after history was lost, which invalidates every cursor.
func (c *Cache) replaceUncached(stats uncachedStats, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inflightMu.Lock()
	c.inflight = nil
	c.inflightMu.Unlock()
	c.uncached = stats
	c.restart(revision)
}

// Complete returns a change with its previous version, which the first call reads from the store. It returns nil if the change is none to watchers:
// the deletion of an object that could not be decoded. It returns store.ErrCompacted if the previous version is no longer in the store's history.
func (c *Cache) Complete(ctx context.Context, change *Change) (*Change, error) {
	u := change.unreadPrev
	if u == nil {
		return change, nil
	}
	if complete := u.complete.Load(); complete != nil {
		return complete, nil
	}
	u.readMu.Lock()
	defer u.readMu.Unlock()
	if u.readDone {
		return u.complete.Load(), nil
	}
	prev, err := c.previousVersion(ctx, change.Item)
	if err != nil {
		return nil, err
	}
	u.readDone = true
	complete := change.with(prev)
	if complete == nil {
		return nil, nil
	}
	u.complete.Store(complete)
	if change.cold.Load() {
		complete.cool()
	}
	if prev != nil {
		c.account(u, complete.size()-len(change.Item.raw)+len(prev.raw))
	}
	return complete, nil
}

// previousVersion reads the version that a change replaced or deleted. It returns nil if there was none, or none that can be decoded.
func (c *Cache) previousVersion(ctx context.Context, changed *Item) (*Item, error) {
	key := c.Kind.Prefix + changed.Key
	found, err := c.feed.store.List(ctx, key, store.ListOptions{Revision: changed.Revision - 1, Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("read %s before revision %d: %w", key, changed.Revision, err)
	}
	if len(found.KVs) == 0 || found.KVs[0].Key != key {
		return nil, nil
	}
	it, err := c.Kind.parse(ctx, changed.Key, found.KVs[0].Value, found.KVs[0].Revision)
	if errors.As(err, new(*UnreadableError)) {
		return nil, err
	}
	if err != nil {
		c.feed.log.Error("failed to decode the previous version of an object", "key", key, "revision", found.KVs[0].Revision, "err", err)
		return nil, nil
	}
	return it, nil
}

// with returns the change with the given previous version, or nil for the deletion of an object that has none.
func (c *Change) with(prev *Item) *Change {
	switch {
	case prev == nil && c.Type == Deleted:
		return nil
	case prev == nil:
		return &Change{Type: Added, Item: c.Item}
	case c.Type == Deleted:
		return &Change{Type: Deleted, Item: prev.At(c.Item.Revision), Prev: prev}
	default:
		return &Change{Type: c.Type, Item: c.Item, Prev: prev}
	}
}

// account adds the bytes that were read for a change to those of the ring.
func (c *Cache) account(u *unreadPrev, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !u.inRing || u.seq < c.ring.first {
		return
	}
	u.heldBytes = bytes
	c.ring.bytes += bytes
	c.ring.shrink()
}

// uncachedStats count the objects of an uncached kind and sample their size.
type uncachedStats struct {
	objects           int64
	values, valueSize int64 // number of values observed, and the sum of their sizes
}

func (s *uncachedStats) count(e store.Event) {
	switch {
	case e.Deleted:
		s.objects--
		return
	case e.Created:
		s.objects++
	}
	s.add(len(e.Value))
}

// add records the size of one value.
func (s *uncachedStats) add(size int) {
	s.values++
	s.valueSize += int64(size)
}

// bytes estimates the size of all objects together from the average size of the values observed.
func (s *uncachedStats) bytes() int64 {
	if s.values == 0 {
		return 0
	}
	return int64(float64(s.objects) * float64(s.valueSize) / float64(s.values))
}
