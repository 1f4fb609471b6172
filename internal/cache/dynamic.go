package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"skiff/internal/store"
)

// Custom resources come and go while the feed runs. The feed's goroutine adds and removes their caches between two batches of changes, so that each
// change is applied by exactly the caches that do not have it yet.

// errClosed is the error of a feed that is shutting down.
var errClosed = errors.New("the cache is shutting down")

// Add starts a cache for each of the kinds and returns them in that order, once they hold the store's state. A kind that has the prefix of an existing
// cache takes its place; the existing cache goes on receiving changes, for the requests that read it, until it is removed. The kinds must be cached ones.
func (f *Feed) Add(ctx context.Context, kinds ...Kind) ([]*Cache, error) {
	added := make([]*Cache, len(kinds))
	for i, k := range kinds {
		added[i] = newCache(k, f)
	}
	var failure error
	err := f.edit(ctx, func(ctx context.Context) {
		for _, c := range added {
			if failure = f.fill(ctx, c); failure != nil {
				return
			}
		}
		caches := maps.Clone(*f.caches.Load())
		for _, c := range added {
			name := f.storageName(c.Kind)
			if existing := caches[name]; existing != nil {
				c.replaced = append(existing.replaced, existing)
				existing.replaced = nil
			}
			caches[name] = c
		}
		f.caches.Store(&caches)
	})
	if err == nil {
		err = failure
	}
	if err != nil {
		return nil, err
	}
	return added, nil
}

// Remove drops caches. Their cursors end after the changes that they have, and nothing changes them any more: requests that still read them get the state
// that they have now, as of the revision that it has.
func (f *Feed) Remove(ctx context.Context, removed ...*Cache) error {
	return f.edit(ctx, func(context.Context) {
		caches := maps.Clone(*f.caches.Load())
		for _, c := range removed {
			if name := f.storageName(c.Kind); caches[name] == c {
				delete(caches, name)
				c.dropReplaced()
			} else if current := caches[name]; current != nil {
				current.replaced = slices.DeleteFunc(slices.Clone(current.replaced), func(old *Cache) bool { return old == c })
			}
			c.remove()
		}
		f.caches.Store(&caches)
	})
}

// edit has the feed's goroutine call a function between two batches, and waits until it has returned.
func (f *Feed) edit(ctx context.Context, change func(context.Context)) error {
	done := make(chan struct{})
	call := func(ctx context.Context) {
		defer close(done)
		change(ctx)
	}
	select {
	case f.edits <- call:
	case <-f.done:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	<-done // soon: the feed's goroutine has taken it
	return nil
}

// fill lists the objects of a new cache at the store's newest revision, which may be ahead of the feed's: loadedRevision keeps the changes up to there
// from being applied again.
func (f *Feed) fill(ctx context.Context, c *Cache) error {
	opts := store.ListOptions{Limit: pageSize}
	var items []*Item
	var unreadable unreadableObjects
	for {
		page, err := f.store.List(ctx, c.Kind.Prefix, opts)
		if err != nil {
			return fmt.Errorf("loading %s: %w", c.Kind.Prefix, err)
		}
		opts.Revision = page.Revision
		for _, kv := range page.KVs {
			key := kv.Key[len(c.Kind.Prefix):]
			it, err := c.Kind.parse(noWait, key, kv.Value, kv.Revision)
			if err != nil {
				unreadable = f.failed(unreadable, key, err, kv.Key)
				continue
			}
			items = append(items, it)
		}
		if !page.More {
			break
		}
		opts.From = page.KVs[len(page.KVs)-1].Key + "\x00"
	}
	c.loadedRevision = opts.Revision
	c.replace(items, unreadable, opts.Revision)
	return nil
}

// remove ends the cursors of a cache, which keeps its state.
func (c *Cache) remove() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removed {
		return
	}
	c.lastApplied = c.revision()
	c.removed = true
	for _, it := range c.byKey {
		c.feed.guard.retire(it)
	}
	for _, it := range c.uninitialized {
		c.feed.guard.retire(it)
	}
	c.wakeNow(&c.allWatchers)
	c.topics.each(func(t *topic) { c.wakeNow(&t.watcherGroup) })
}

// dropReplaced removes the caches whose place this one has taken.
func (c *Cache) dropReplaced() {
	for _, old := range c.replaced {
		old.remove()
	}
	c.replaced = nil
}
