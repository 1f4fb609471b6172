package cache

import (
	"bytes"
	"sync"
	"sync/atomic"
)

// Foreseen is a write on its way to the store. Whoever writes knows the object already; when the store tells of the write, the feed takes
// the item from there instead of reading the stored bytes again.
type Foreseen struct {
	key   string
	value []byte
	make  func(revision int64) *Item
	once  sync.Once
	item  atomic.Pointer[Item]
}

// Item is the object at the revision that the write was given. The first who asks has it made.
func (f *Foreseen) Item(revision int64) *Item {
	f.once.Do(func() {
		f.item.Store(f.make(revision))
		f.make = nil
	})
	return f.item.Load()
}

// Foresee says that a value is about to be written under a key, and how to make the item of it. If the write fails, Forget must be called; if
// it does not, the feed will come across it.
func (c *Cache) Foresee(key string, value []byte, make func(revision int64) *Item) *Foreseen {
	f := &Foreseen{key: key, value: value, make: make}
	c.foreseenMu.Lock()
	defer c.foreseenMu.Unlock()
	if c.foreseen == nil {
		c.foreseen = map[string]*Foreseen{}
	}
	c.foreseen[key] = f
	return f
}

// Forget says that a write failed, or that nobody knows.
func (c *Cache) Forget(f *Foreseen) {
	c.foreseenMu.Lock()
	defer c.foreseenMu.Unlock()
	if c.foreseen[f.key] == f {
		delete(c.foreseen, f.key)
	}
}

// Newest returns the newest version of an object that is known: the one that was written here last, should the feed not have come across it
// yet, or else what Get returns.
func (c *Cache) Newest(key string) *Item {
	current := c.Get(key)
	c.foreseenMu.Lock()
	f := c.foreseen[key]
	c.foreseenMu.Unlock()
	if f != nil {
		if it := f.item.Load(); it != nil && (current == nil || it.Revision > current.Revision) {
			return it
		}
	}
	return current
}

// read makes an item of what the store tells, or takes the one that was foreseen.
func (c *Cache) read(key string, value []byte, revision int64) (*Item, error) {
	c.foreseenMu.Lock()
	f := c.foreseen[key]
	c.foreseenMu.Unlock()
	if f == nil || !bytes.Equal(f.value, value) {
		return c.Kind.parse(key, value, revision)
	}
	c.Forget(f)
	if it := f.Item(revision); it.Revision == revision {
		return it, nil
	}
	return c.Kind.parse(key, value, revision) // the same was written before
}
