package cache

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"skiff/internal/store"
)

// The objects of an uncached kind are in the store alone: there may be many of them, and nobody in this process follows them. Upstream
// has one such kind, Events. The cache keeps the latest changes, in a smaller ring, for those who watch; what a watcher needs of the
// version before a change is read from the store, by the first watcher that needs it.

// uncachedRing is smaller than what other kinds have: a watcher that falls behind reads the store's history, which costs an uncached kind
// no memory. The bound in bytes holds for any number of changes but the last.
var uncachedRing = ringBounds{min: 1, max: 1024, bytes: 2 << 20}

// unread stands for the version before a change of an uncached kind.
type unread struct {
	reading  sync.Mutex // held by who reads the version before
	known    bool       // it was read; guarded by reading
	complete atomic.Pointer[Change]

	inRing bool   // guarded by the cache's lock, as are the others
	seq    uint64 // of the change
	held   int    // bytes of what was read that the ring accounts for
}

// NewUncachedChange returns the change that an event of the store is to an object of an uncached kind. it is the object, nil if it was deleted.
//
// The version before is missing: Prev of a modified object is the object itself, which is right for who selects by name or namespace, and
// Item of a deleted one has nothing but its key and the revision. See Cache.Complete.
func NewUncachedChange(key string, it *Item, e store.Event) *Change {
	switch {
	case e.Deleted:
		gone := &Item{Key: key, Name: key, Revision: e.Revision}
		if namespace, name, ok := strings.Cut(key, "/"); ok {
			gone.Namespace, gone.Name = namespace, name
		}
		return &Change{Type: Deleted, Item: gone, unread: &unread{}}
	case e.Created:
		return &Change{Type: Added, Item: it}
	default:
		return &Change{Type: Modified, Item: it, Prev: it, unread: &unread{}}
	}
}

// applyUncached takes one change of the store into the cache of an uncached kind. Only the feed calls it.
func (c *Cache) applyUncached(key string, it *Item, e store.Event) *Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uncached.count(e)
	c.last = e.Revision
	if it == nil && !e.Deleted { // it cannot be read
		return nil
	}
	change := NewUncachedChange(key, it, e)
	if u := change.unread; u != nil {
		u.inRing, u.seq = true, c.ring.next
	}
	c.ring.add(change)
	c.topics.publish(change, &c.ring)
	return change
}

// replaceUncached begins anew at a revision, after history was lost: every cursor ends.
func (c *Cache) replaceUncached(stats uncachedStats, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.foreseenMu.Lock()
	c.foreseen = nil
	c.foreseenMu.Unlock()
	c.uncached = stats
	c.restart(revision)
}

// Complete returns a change with the version before it, which is read from the store when it is first asked for; nil if it turns out to be
// no change, because an object that could not be read was deleted. store.ErrCompacted means that the version before is no longer known.
func (c *Cache) Complete(ctx context.Context, change *Change) (*Change, error) {
	u := change.unread
	if u == nil {
		return change, nil
	}
	if complete := u.complete.Load(); complete != nil {
		return complete, nil
	}
	u.reading.Lock()
	defer u.reading.Unlock()
	if u.known {
		return u.complete.Load(), nil
	}
	prev, err := c.before(ctx, change.Item)
	if err != nil {
		return nil, err
	}
	u.known = true
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

// before reads the version that a change replaced or deleted; nil if there was none that can be read.
func (c *Cache) before(ctx context.Context, changed *Item) (*Item, error) {
	key := c.Kind.Prefix + changed.Key
	found, err := c.feed.store.List(ctx, key, store.ListOptions{Revision: changed.Revision - 1, Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("read %s before revision %d: %w", key, changed.Revision, err)
	}
	if len(found.KVs) == 0 || found.KVs[0].Key != key {
		return nil, nil
	}
	it, err := c.Kind.parse(changed.Key, found.KVs[0].Value, found.KVs[0].Revision)
	if err != nil {
		c.feed.log.Error("failed to decode the previous version of an object", "key", key, "revision", found.KVs[0].Revision, "err", err)
		return nil, nil
	}
	return it, nil
}

// with returns the change given the version before it.
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

// account has the ring take note that a change holds more bytes than before.
func (c *Cache) account(u *unread, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !u.inRing || u.seq < c.ring.first {
		return
	}
	u.held = bytes
	c.ring.bytes += bytes
	c.ring.shrink()
}

// uncachedStats are what is known of the objects of an uncached kind.
type uncachedStats struct {
	objects           int64
	values, valueSize int64 // how many values have been seen, and their sizes together
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

// add takes note of the size of one value.
func (s *uncachedStats) add(size int) {
	s.values++
	s.valueSize += int64(size)
}

// bytes is about how large all objects are together, judging by those that have been seen.
func (s *uncachedStats) bytes() int64 {
	if s.values == 0 {
		return 0
	}
	return int64(float64(s.objects) * float64(s.valueSize) / float64(s.values))
}
