package cache

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/btree"
	"k8s.io/apimachinery/pkg/runtime"
)

// Kind describes the resource of a cache.
type Kind struct {
	Name   string // the resource's name in messages and metrics
	Prefix string // the prefix of its keys in the store, with the closing slash
	// Parse makes an item of a stored value: NewItem, then Namespace, Name, UID, Labels and Fields. The cache sets Key. The
	// value belongs to the item afterwards.
	Parse func(value []byte, revision int64) (*Item, error)
	// Open returns what was written of what is stored under a key of the store, if values are stored in another form: encrypted. It does not wait if ctx is done. An
	// object that it cannot open is unreadable: see unreadable.go. It may be nil.
	Open func(ctx context.Context, key string, stored []byte) ([]byte, error)
	// Decode returns the object encoded in an item's Raw.
	Decode func(raw []byte) (runtime.Object, error)
	// Uncached is set if the cache keeps no objects of this kind, only its latest changes: see uncached.go.
	Uncached bool
}

// Cache holds the objects of one resource and its latest changes.
type Cache struct {
	Kind Kind
	feed *Feed

	mu      sync.RWMutex
	byKey   map[string]*Item
	ordered *btree.BTreeG[*Item]
	// uninitialized has the objects that still wait for their initializers; nil if there are none. They are in neither byKey nor ordered.
	uninitialized map[string]*Item
	ring          ring
	epoch         uint64 // incremented when history is lost, which invalidates all cursors
	allWatchers   watcherGroup
	topics        topics

	inflightMu sync.Mutex
	inflight   map[string]*InflightWrite // writes sent to the store that the feed has not observed yet, by key

	uncached uncachedStats // object counts; used only by an uncached kind

	unreadable unreadableObjects // replaced, never changed; nil unless there are some

	sharers     atomic.Int32 // number of readers of decoded objects in this process; objects are kept decoded while it is not zero
	bytes       int64
	lastApplied int64 // revision of the newest change applied
	// loadedRevision is the revision at which the objects were listed. Changes up to it are not applied again. Only the feed's goroutine uses it.
	loadedRevision int64
	removed        bool      // whether the feed has dropped the cache: it changes no more, and its cursors end
	replaced       []*Cache  // caches of the same objects whose place this one has taken, and that are not removed yet; only the feed's goroutine uses it
	trimMarks      [2]uint64 // the ring's next sequence at the last two calls of trim
}

// revision returns the revision whose state the cache holds. It may be ahead of the feed's, which advances only after the whole
// batch has been applied. The caller holds the lock.
func (c *Cache) revision() int64 {
	if c.removed {
		return c.lastApplied
	}
	return max(c.feed.applied.Load(), c.lastApplied)
}

func newCache(k Kind, f *Feed) *Cache {
	c := &Cache{Kind: k, feed: f, byKey: map[string]*Item{}, ordered: newTree()}
	c.ring.bounds = cachedRing
	if k.Uncached {
		c.ring.bounds = uncachedRing
	}
	c.allWatchers.init(0)
	return c
}

func newTree() *btree.BTreeG[*Item] {
	return btree.NewG(32, func(a, b *Item) bool { return a.Key < b.Key })
}

// Get returns the object under a key ("namespace/name" or "name"), or nil. It is always nil for an uncached kind.
func (c *Cache) Get(key string) *Item {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byKey[key]
}

// GetUninitialized is Get, also for an object that still waits for its initializers.
func (c *Cache) GetUninitialized(key string) *Item {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.known(key)
}

// known returns an object, initialized or not. The caller holds the lock.
func (c *Cache) known(key string) *Item {
	if it := c.byKey[key]; it != nil || len(c.uninitialized) == 0 {
		return it
	}
	return c.uninitialized[key]
}

// Uninitialized returns the objects that still wait for their initializers.
func (c *Cache) Uninitialized() []*Item {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Values(c.uninitialized))
}

// Snapshot is the state of a resource at one revision. Later changes of the cache do not affect it.
type Snapshot struct {
	Revision   int64
	tree       *btree.BTreeG[*Item]
	unreadable unreadableObjects
}

// Snapshot returns the current state. It has no objects for an uncached kind.
func (c *Cache) Snapshot() Snapshot {
	// Clone marks the tree's nodes as shared, which is a write.
	c.mu.Lock()
	defer c.mu.Unlock()
	return Snapshot{Revision: c.revision(), tree: c.ordered.Clone(), unreadable: c.unreadable}
}

// SnapshotUninitialized is Snapshot with the objects that still wait for their initializers.
func (c *Cache) SnapshotUninitialized() Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Snapshot{Revision: c.revision(), tree: c.treeWithUninitialized(), unreadable: c.unreadable}
}

// treeWithUninitialized returns a tree of all objects. The caller holds the lock.
func (c *Cache) treeWithUninitialized() *btree.BTreeG[*Item] {
	tree := c.ordered.Clone()
	for _, it := range c.uninitialized {
		tree.ReplaceOrInsert(it)
	}
	return tree
}

// Len returns the number of objects in the snapshot.
func (s Snapshot) Len() int { return s.tree.Len() }

// Len returns the number of objects of the resource.
func (c *Cache) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.objects()
}

// objects returns the number of objects of the resource. The caller holds the lock.
func (c *Cache) objects() int {
	if c.Kind.Uncached {
		return int(c.uncached.objects)
	}
	return len(c.byKey)
}

// Ascend calls f for the objects whose key begins with prefix, in order, starting at key from (if not empty), until f returns false.
func (s Snapshot) Ascend(prefix, from string, f func(*Item) bool) {
	s.tree.AscendGreaterOrEqual(&Item{Key: max(prefix, from)}, func(it *Item) bool {
		return strings.HasPrefix(it.Key, prefix) && f(it)
	})
}

// Share registers a reader of decoded objects in this process until release is called: meanwhile each object is decoded once
// and kept.
func (c *Cache) Share() (release func()) {
	c.sharers.Add(1)
	return sync.OnceFunc(func() {
		if c.sharers.Add(-1) == 0 {
			c.dropDecoded()
		}
	})
}

// Sharing reports whether decoded objects of this resource are kept.
func (c *Cache) Sharing() bool { return c.sharers.Load() > 0 }

func (c *Cache) dropDecoded() {
	s := c.SnapshotUninitialized()
	s.Ascend("", "", func(it *Item) bool {
		it.object.Store(nil)
		c.feed.guard.retire(it)
		return true
	})
}

// Object returns the decoded form of an item. It is shared: nobody may change it.
func (c *Cache) Object(it *Item) (runtime.Object, error) {
	if p := it.object.Load(); p != nil {
		return *p, nil
	}
	obj, err := c.Kind.Decode(it.raw)
	if err != nil {
		return nil, err
	}
	if c.Kind.Uncached || !c.Sharing() {
		return obj, nil
	}
	warm(obj)
	if !it.object.CompareAndSwap(nil, &obj) {
		if p := it.object.Load(); p != nil {
			return *p, nil
		}
		return obj, nil
	}
	if !c.Sharing() { // the last reader left meanwhile
		it.object.Store(nil)
	}
	c.feed.guard.watch(c, it, obj)
	return obj, nil
}

// warm fills the lazily computed fields of an object before it is shared: a Quantity caches its text when first read, so that reading it
// from two goroutines would be a race. Size reads the text of every Quantity in the object.
func warm(obj runtime.Object) {
	if sized, ok := obj.(interface{ Size() int }); ok {
		sized.Size()
	}
}

// apply applies one event of the store. it is nil for a deletion. Only the feed calls it.
func (c *Cache) apply(key string, it *Item, revision int64) *Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	prev := c.known(key)
	change := &Change{Item: it, Prev: prev}
	c.unreadable = c.unreadable.without(key)
	switch {
	case it == nil && prev == nil:
		return nil
	case it == nil:
		change.Type, change.Item = Deleted, prev.At(revision)
		c.drop(prev)
		c.bytes -= int64(len(prev.raw))
	default:
		change.Type = Modified
		if prev == nil {
			change.Type = Added
		} else {
			c.bytes -= int64(len(prev.raw))
			if prev.Uninitialized != it.Uninitialized {
				c.drop(prev)
			}
		}
		c.put(it)
		c.bytes += int64(len(it.raw))
	}
	c.feed.guard.retire(prev)
	c.ring.add(change)
	c.topics.publish(change, &c.ring)
	c.lastApplied = revision
	return change
}

// put adds an object, or replaces it. The caller holds the lock.
func (c *Cache) put(it *Item) {
	if it.Uninitialized {
		if c.uninitialized == nil {
			c.uninitialized = map[string]*Item{}
		}
		c.uninitialized[it.Key] = it
		return
	}
	c.byKey[it.Key] = it
	c.ordered.ReplaceOrInsert(it)
}

// drop removes an object. The caller holds the lock.
func (c *Cache) drop(it *Item) {
	if !it.Uninitialized {
		delete(c.byKey, it.Key)
		c.ordered.Delete(it)
		return
	}
	if delete(c.uninitialized, it.Key); len(c.uninitialized) == 0 {
		c.uninitialized = nil
	}
}

// replace sets the whole state after history was lost, which invalidates every cursor.
func (c *Cache) replace(items []*Item, unreadable unreadableObjects, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, it := range c.byKey {
		c.feed.guard.retire(it)
	}
	for _, it := range c.uninitialized {
		c.feed.guard.retire(it)
	}
	c.inflightMu.Lock()
	c.inflight = nil // the feed may never observe what was written meanwhile
	c.inflightMu.Unlock()
	c.unreadable = unreadable
	c.byKey = make(map[string]*Item, len(items))
	c.ordered = newTree()
	c.uninitialized = nil
	c.bytes = 0
	for _, it := range items {
		c.put(it)
		c.bytes += int64(len(it.raw))
	}
	c.restart(revision)
}

// restart drops all changes up to a revision, which invalidates every cursor. The caller holds the lock.
func (c *Cache) restart(revision int64) {
	c.ring.reset(revision)
	c.lastApplied = revision
	c.epoch++
	c.wakeNow(&c.allWatchers)
	c.topics.each(func(t *topic) {
		t.dropBefore(c.ring.first)
		c.wakeNow(&t.watcherGroup)
	})
}

// trim drops the changes made before the second last call of trim, so that an idle cache holds no old versions.
func (c *Cache) trim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if keep := c.ring.next; keep > ringMin {
		c.ring.trim(min(c.trimMarks[0], keep-ringMin)) // an uncached kind may hold fewer, if its objects are large
		c.topics.each(func(t *topic) { t.dropBefore(c.ring.first) })
	}
	c.trimMarks = [2]uint64{c.trimMarks[1], c.ring.next}
}

// Stats are the figures of a cache for metrics.
type Stats struct {
	Objects int   // number of objects of the resource
	Bytes   int64 // their encoded size; an estimate for an uncached kind
	Ring    int   // number of changes held for watchers
}

// Stats returns the cache's figures.
func (c *Cache) Stats() Stats {
	c.mu.RLock()
	defer c.mu.RUnlock()
	bytes := c.bytes
	if c.Kind.Uncached {
		bytes = c.uncached.bytes()
	}
	return Stats{Objects: c.objects(), Bytes: bytes, Ring: int(c.ring.next - c.ring.first)}
}
