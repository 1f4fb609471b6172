package cache

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/btree"
	"k8s.io/apimachinery/pkg/runtime"
)

// Kind is what a cache knows of its resource.
type Kind struct {
	Name   string // for messages and metrics
	Prefix string // of its keys in the store, with the closing slash
	// Parse makes an item of a stored value: NewItem, then Namespace, Name, UID, Labels and Fields. Key is set by the cache. The
	// value belongs to the item afterwards.
	Parse func(value []byte, revision int64) (*Item, error)
	// Decode makes an object of an item's Raw.
	Decode func(raw []byte) (runtime.Object, error)
	// Uncached says that the cache keeps no objects of this kind, only its latest changes: see uncached.go.
	Uncached bool
}

// Cache holds the objects of one resource and its latest changes.
type Cache struct {
	Kind Kind
	feed *Feed

	mu       sync.RWMutex
	byKey    map[string]*Item
	ordered  *btree.BTreeG[*Item]
	ring     ring
	epoch    uint64 // grows when history is lost, which ends all cursors
	everyone audience
	topics   topics

	foreseenMu sync.Mutex
	foreseen   map[string]*Foreseen // writes on their way, by key

	uncached uncachedStats // of an uncached kind

	sharers atomic.Int32 // how many in this process read decoded objects; they are kept while it is not zero
	bytes   int64
	last    int64 // revision of the newest change applied
	marks   [2]uint64
}

// revision is the one the objects held now are the state of. The feed may have applied a change here before it has finished
// the batch and moved its own revision.
func (c *Cache) revision() int64 { return max(c.feed.applied.Load(), c.last) }

func newCache(k Kind, f *Feed) *Cache {
	c := &Cache{Kind: k, feed: f, byKey: map[string]*Item{}, ordered: newTree()}
	c.ring.bounds = cachedRing
	if k.Uncached {
		c.ring.bounds = uncachedRing
	}
	c.everyone.open(0)
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

// Snapshot is the state of a resource at one revision. It stays as it is whatever happens to the cache.
type Snapshot struct {
	Revision int64
	tree     *btree.BTreeG[*Item]
}

// Snapshot pins the current state. It has no objects for an uncached kind.
func (c *Cache) Snapshot() Snapshot {
	// Clone marks the tree's nodes as shared, which is a write.
	c.mu.Lock()
	defer c.mu.Unlock()
	return Snapshot{Revision: c.revision(), tree: c.ordered.Clone()}
}

// Len is the number of objects in the snapshot.
func (s Snapshot) Len() int { return s.tree.Len() }

// Len is the number of objects.
func (c *Cache) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.objects()
}

// objects is the number of objects. The lock is held.
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

// Share says that decoded objects of this resource are read in this process, until the returned function is called: they are
// then decoded once and kept.
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
	s := c.Snapshot()
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

// warm lets an object fill in what it computes when first read, while nobody else has it: a Quantity keeps its text, so that reading it
// from two goroutines would be a race. Sizing the object asks every quantity in it for its text.
func warm(obj runtime.Object) {
	if sized, ok := obj.(interface{ Size() int }); ok {
		sized.Size()
	}
}

// apply takes one change of the store into the cache. Only the feed calls it.
func (c *Cache) apply(key string, it *Item, revision int64) *Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	prev := c.byKey[key]
	change := &Change{Item: it, Prev: prev}
	switch {
	case it == nil && prev == nil:
		return nil
	case it == nil:
		change.Type, change.Item = Deleted, prev.At(revision)
		delete(c.byKey, key)
		c.ordered.Delete(prev)
		c.bytes -= int64(len(prev.raw))
	default:
		change.Type = Modified
		if prev == nil {
			change.Type = Added
		} else {
			c.bytes -= int64(len(prev.raw))
		}
		c.byKey[key] = it
		c.ordered.ReplaceOrInsert(it)
		c.bytes += int64(len(it.raw))
	}
	c.feed.guard.retire(prev)
	c.ring.add(change)
	c.topics.publish(change, &c.ring)
	c.last = revision
	return change
}

// replace takes a whole new state, after history was lost: every cursor ends.
func (c *Cache) replace(items []*Item, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, it := range c.byKey {
		c.feed.guard.retire(it)
	}
	c.foreseenMu.Lock()
	c.foreseen = nil // of what was written meanwhile the feed may never hear
	c.foreseenMu.Unlock()
	c.byKey = make(map[string]*Item, len(items))
	c.ordered = newTree()
	c.bytes = 0
	for _, it := range items {
		c.byKey[it.Key] = it
		c.ordered.ReplaceOrInsert(it)
		c.bytes += int64(len(it.raw))
	}
	c.restart(revision)
}

// restart forgets all changes up to a revision, which ends every cursor. The lock is held.
func (c *Cache) restart(revision int64) {
	c.ring.reset(revision)
	c.last = revision
	c.epoch++
	c.wake(&c.everyone)
	c.topics.each(func(t *topic) {
		t.forget(c.ring.first)
		c.wake(&t.audience)
	})
}

// trim forgets changes made before the mark of two calls ago, so that an idle cache holds no old versions.
func (c *Cache) trim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if keep := c.ring.next; keep > ringMin {
		c.ring.trim(min(c.marks[0], keep-ringMin)) // of an uncached kind fewer are held if they are large
		c.topics.each(func(t *topic) { t.forget(c.ring.first) })
	}
	c.marks = [2]uint64{c.marks[1], c.ring.next}
}

// Stats is what metrics tell of a cache.
type Stats struct {
	Objects int
	Bytes   int64
	Ring    int
}

// Stats counts what the cache holds.
func (c *Cache) Stats() Stats {
	c.mu.RLock()
	defer c.mu.RUnlock()
	bytes := c.bytes
	if c.Kind.Uncached {
		bytes = c.uncached.bytes()
	}
	return Stats{Objects: c.objects(), Bytes: bytes, Ring: int(c.ring.next - c.ring.first)}
}
