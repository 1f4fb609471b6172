package cache

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
)

// InflightWrite is a write that was sent to the store and that the feed has not observed yet. The writer has the decoded object, so the feed takes
// the item from the write instead of parsing the stored bytes again.
type InflightWrite struct {
	key   string
	value []byte
	make  func(revision int64) *Item // called once, by the first caller of Item
	once  sync.Once
	item  atomic.Pointer[Item]
}

// Item returns the written object at the revision that the store gave the write. The first call fixes the revision; later calls return the same item.
func (w *InflightWrite) Item(revision int64) *Item {
	w.once.Do(func() {
		w.item.Store(w.make(revision))
		w.make = nil
	})
	return w.item.Load()
}

// BeginWrite registers a value that is about to be written under a key, with the function that makes its item. If the write fails, the caller must call
// AbortWrite; if it succeeds, the feed observes and removes it.
func (c *Cache) BeginWrite(key string, value []byte, make func(revision int64) *Item) *InflightWrite {
	w := &InflightWrite{key: key, value: value, make: make}
	c.inflightMu.Lock()
	defer c.inflightMu.Unlock()
	if c.inflight == nil {
		c.inflight = map[string]*InflightWrite{}
	}
	c.inflight[key] = w
	return w
}

// AbortWrite removes a write that failed, or whose outcome is unknown.
func (c *Cache) AbortWrite(w *InflightWrite) { c.removeInflight(w) }

// removeInflight removes a write unless a later one of the same key has taken its place.
func (c *Cache) removeInflight(w *InflightWrite) {
	c.inflightMu.Lock()
	defer c.inflightMu.Unlock()
	if c.inflight[w.key] == w {
		delete(c.inflight, w.key)
	}
}

// Newest returns the newest version of an object known to this process: that of an acknowledged in-flight write, if the feed has not observed it
// yet, or else what GetUninitialized returns.
func (c *Cache) Newest(key string) *Item {
	current := c.GetUninitialized(key)
	c.inflightMu.Lock()
	w := c.inflight[key]
	c.inflightMu.Unlock()
	if w != nil {
		if it := w.item.Load(); it != nil && (current == nil || it.Revision > current.Revision) {
			return it
		}
	}
	return current
}

// itemFor returns the item of an event of the store: that of the in-flight write with the same value, or else a newly parsed one.
func (c *Cache) itemFor(ctx context.Context, key string, value []byte, revision int64) (*Item, error) {
	c.inflightMu.Lock()
	w := c.inflight[key]
	c.inflightMu.Unlock()
	if w == nil || !bytes.Equal(w.value, value) {
		return c.Kind.parse(ctx, key, value, revision)
	}
	c.removeInflight(w)
	if it := w.Item(revision); it.Revision == revision {
		return it, nil
	}
	return c.Kind.parse(ctx, key, value, revision) // another write of the same value came first
}
