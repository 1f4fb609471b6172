package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"skiff/internal/store"
)

// Feed fills a set of caches from one watch of the store, so that all of them are at the same revision. Caches may be added and removed while it runs.
type Feed struct {
	store  store.Store
	root   string                            // "/registry/"
	caches atomic.Pointer[map[string]*Cache] // by storage name; the map is replaced, never changed, and once the feed runs only by its goroutine
	edits  chan func(context.Context)        // functions that the feed's goroutine calls between two batches
	hot    *Hot
	guard  *guard
	log    *slog.Logger
	// observe, if set, is called for every change right after the cache has applied it.
	observe func(*Cache, *Change)

	applied  atomic.Int64 // the revision all caches have reached
	waiters  atomic.Int32
	mu       sync.Mutex
	advanced chan struct{} // closed and replaced when applied advances while somebody waits

	recovery recovery // of unreadable objects

	synced chan struct{}
	done   chan struct{}
	cancel context.CancelFunc
}

// Options are the options of a feed. Zero values are usable.
type Options struct {
	Root    string                // the prefix of all keys; "/registry/" if empty
	Observe func(*Cache, *Change) // called for every change right after the cache has applied it
	// GuardShared is called with a description of every change in place of a shared decoded object. Checking is costly: for tests.
	GuardShared func(problem string)
	Log         *slog.Logger
	// HotBytes bounds the derived encodings of all caches together; 24 MiB if zero.
	HotBytes int
}

const (
	pageSize      = 1000
	defaultHot    = 24 << 20
	hotIdle       = 30 * time.Second
	trimEvery     = time.Minute
	progressAfter = 20 * time.Millisecond // how long a read waits for the watch before it asks for a progress report
	firstBackoff  = 10 * time.Millisecond
	maxBackoff    = 2 * time.Second
)

// NewFeed starts filling a cache for each kind. The caches are usable once Synced is closed.
func NewFeed(s store.Store, kinds []Kind, opts Options) *Feed {
	ctx, cancel := context.WithCancel(context.Background())
	f := &Feed{
		store: s, root: opts.Root, edits: make(chan func(context.Context)), observe: opts.Observe, log: opts.Log,
		advanced: make(chan struct{}), synced: make(chan struct{}), done: make(chan struct{}), cancel: cancel,
		guard: newGuard(opts.GuardShared),
	}
	if f.root == "" {
		f.root = "/registry/"
	}
	if f.log == nil {
		f.log = slog.Default()
	}
	if opts.HotBytes == 0 {
		opts.HotBytes = defaultHot
	}
	f.recovery.ctx, f.recovery.retry = ctx, make(chan struct{}, 1)
	f.hot = NewHot(opts.HotBytes, hotIdle)
	caches := make(map[string]*Cache, len(kinds))
	for _, k := range kinds {
		caches[f.storageName(k)] = newCache(k, f)
	}
	f.caches.Store(&caches)
	go f.run(ctx)
	return f
}

// storageName returns the part of the kind's keys between the root and the object's key.
func (f *Feed) storageName(k Kind) string {
	return strings.TrimSuffix(strings.TrimPrefix(k.Prefix, f.root), "/")
}

// Cache returns the cache of a kind by its storage name, the part of a store key between the root and the object's key; nil if there is none.
func (f *Feed) Cache(storageName string) *Cache { return (*f.caches.Load())[storageName] }

// Hot returns what accounts for the derived forms of all caches.
func (f *Feed) Hot() *Hot { return f.hot }

// Synced returns a channel that is closed when the caches hold the store's state.
func (f *Feed) Synced() <-chan struct{} { return f.synced }

// Revision returns the revision that all caches have reached.
func (f *Feed) Revision() int64 { return f.applied.Load() }

// Close stops the feed and waits until it has stopped.
func (f *Feed) Close() {
	f.cancel()
	<-f.done
	f.recovery.running.Wait()
	f.hot.Close()
	f.guard.checkAll()
}

// CheckShared checks every shared decoded object now, if Options.GuardShared was set.
func (f *Feed) CheckShared() { f.guard.checkAll() }

// Fresh waits until the caches have applied every write acknowledged before the call.
func (f *Feed) Fresh(ctx context.Context) error {
	revision, err := f.store.Revision(ctx)
	if err != nil {
		return err
	}
	return f.WaitFor(ctx, revision)
}

// WaitFor waits until the caches have reached a revision.
func (f *Feed) WaitFor(ctx context.Context, revision int64) error {
	if f.applied.Load() >= revision {
		return nil
	}
	f.waiters.Add(1)
	defer f.waiters.Add(-1)
	nudge := time.NewTimer(progressAfter)
	defer nudge.Stop()
	for {
		f.mu.Lock()
		advanced := f.advanced
		f.mu.Unlock()
		if f.applied.Load() >= revision {
			return nil
		}
		select {
		case <-advanced:
		case <-nudge.C:
			// The last revisions may have changed nothing under the root; the watch reports such revisions only on request.
			if err := f.store.Progress(ctx); err != nil && ctx.Err() == nil {
				f.log.Warn("failed to request a progress report from the store", "error", err)
			}
			nudge.Reset(progressAfter)
		case <-ctx.Done():
			return ctx.Err()
		case <-f.done:
			return errClosed
		}
	}
}

func (f *Feed) run(ctx context.Context) {
	defer close(f.done)
	backoff := firstBackoff
	for ctx.Err() == nil {
		before := f.applied.Load()
		err := f.listAndWatch(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, store.ErrCompacted) {
			f.log.Warn("the store has compacted revisions that the cache has not observed; relisting", "revision", f.applied.Load())
			f.applied.Store(0)
		} else {
			f.log.Warn("watch of the store failed; resuming", "error", err, "after", backoff)
		}
		if f.applied.Load() > before {
			backoff = firstBackoff // it went well for a while
		}
		f.pause(ctx, backoff)
		backoff = min(2*backoff, maxBackoff)
	}
}

// pause waits, and meanwhile adds and removes caches.
func (f *Feed) pause(ctx context.Context, d time.Duration) {
	over := time.NewTimer(d)
	defer over.Stop()
	for {
		select {
		case <-over.C:
			return
		case edit := <-f.edits:
			edit(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// listAndWatch loads the state, unless it was loaded before, and then applies changes until the watch fails.
func (f *Feed) listAndWatch(ctx context.Context) error {
	if f.applied.Load() == 0 {
		if err := f.load(ctx); err != nil {
			return err
		}
		select {
		case <-f.synced:
		default:
			close(f.synced)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := f.store.Watch(ctx, f.root, f.applied.Load())
	trim := time.NewTicker(trimEvery)
	defer trim.Stop()
	for {
		select {
		case batch, ok := <-watch.Batches():
			if !ok {
				return watch.Err()
			}
			f.apply(batch)
		case edit := <-f.edits:
			edit(ctx)
		case <-trim.C:
			for _, c := range *f.caches.Load() {
				c.trim()
			}
		}
	}
}

// apply applies a batch of events to the caches they belong to and wakes their watchers.
func (f *Feed) apply(batch store.Batch) {
	var few [8]*Cache // a batch is usually one change
	changed := few[:0]
	for _, e := range batch.Events {
		c, key := f.route(e.Key)
		if c == nil {
			continue
		}
		changed = f.applyTo(c, key, e, changed)
		for _, old := range c.replaced {
			changed = f.applyTo(old, key, e, changed)
		}
	}
	f.advance(batch.Revision)
	for _, c := range changed {
		c.notify()
	}
}

// applyTo applies an event to a cache, and appends the cache to those that have changed.
func (f *Feed) applyTo(c *Cache, key string, e store.Event, changed []*Cache) []*Cache {
	if e.Revision <= c.loadedRevision {
		return changed
	}
	var it *Item
	if !e.Deleted {
		var err error
		it, err = c.itemFor(noWait, key, e.Value, e.Revision)
		if unreadable := f.unreadable(err, e.Key); unreadable != nil {
			c.applyUnreadable(key, e, unreadable)
			return changed
		}
	}
	var change *Change
	if c.Kind.Uncached {
		change = c.applyUncached(key, it, e)
	} else {
		change = c.apply(key, it, e.Revision)
	}
	if change == nil {
		return changed
	}
	if f.observe != nil {
		f.observe(c, change)
	}
	if len(changed) == 0 || changed[len(changed)-1] != c {
		changed = append(changed, c)
	}
	return changed
}

// advance sets the revision that all caches have reached and wakes those who wait for it.
func (f *Feed) advance(revision int64) {
	if revision <= f.applied.Load() {
		return
	}
	f.applied.Store(revision)
	if f.waiters.Load() > 0 {
		f.mu.Lock()
		close(f.advanced)
		f.advanced = make(chan struct{})
		f.mu.Unlock()
	}
}

// load reads the whole state at one revision.
func (f *Feed) load(ctx context.Context) error {
	items, uncached, unreadable := map[*Cache][]*Item{}, map[*Cache]uncachedStats{}, map[*Cache]unreadableObjects{}
	opening := ctx // until the first failure: nothing else waits for the feed when it starts
	opts := store.ListOptions{Limit: pageSize}
	for {
		page, err := f.store.List(ctx, f.root, opts)
		if err != nil {
			return fmt.Errorf("loading %s: %w", f.root, err)
		}
		opts.Revision = page.Revision
		more, next := page.More, ""
		for _, kv := range page.KVs {
			c, key := f.route(kv.Key)
			if c == nil {
				continue
			}
			if c.Kind.Uncached {
				if uncached[c], err = f.countUncached(ctx, c, kv, opts.Revision); err != nil {
					return err
				}
				more, next = true, endOf(c.Kind.Prefix)
				break
			}
			it, err := c.Kind.parse(opening, key, kv.Value, kv.Revision)
			if err != nil {
				unreadable[c], opening = f.failed(unreadable[c], key, err, kv.Key), noWait
				continue
			}
			items[c] = append(items[c], it)
		}
		if !more {
			break
		}
		if next == "" {
			next = page.KVs[len(page.KVs)-1].Key + "\x00"
		}
		opts.From = next
	}
	for _, c := range *f.caches.Load() {
		c.dropReplaced()
		c.loadedRevision = opts.Revision
		if c.Kind.Uncached {
			c.replaceUncached(uncached[c], opts.Revision)
		} else {
			c.replace(items[c], unreadable[c], opts.Revision)
		}
	}
	f.advance(opts.Revision)
	return nil
}

// countUncached returns the number of objects of an uncached kind and the size of the given first one.
func (f *Feed) countUncached(ctx context.Context, c *Cache, first store.KV, revision int64) (stats uncachedStats, err error) {
	all, err := f.store.List(ctx, c.Kind.Prefix, store.ListOptions{Revision: revision, Limit: 1})
	if err != nil {
		return stats, fmt.Errorf("counting %s: %w", c.Kind.Prefix, err)
	}
	stats.objects = all.Count
	stats.add(len(first.Value))
	return stats, nil
}

// endOf returns the first key after all keys that begin with a prefix, which must end with a slash.
func endOf(prefix string) string { return prefix[:len(prefix)-1] + string('/'+1) }

// route returns the cache of a store key, and the key without the kind's prefix. Storage names are one path segment, or two ("services/specs").
func (f *Feed) route(key string) (*Cache, string) {
	rest, ok := strings.CutPrefix(key, f.root)
	if !ok {
		return nil, ""
	}
	caches := *f.caches.Load()
	for at := 0; ; {
		slash := strings.IndexByte(rest[at:], '/')
		if slash < 0 {
			return nil, ""
		}
		if c := caches[rest[:at+slash]]; c != nil {
			return c, rest[at+slash+1:]
		}
		at += slash + 1
	}
}

func (k Kind) parse(ctx context.Context, key string, value []byte, revision int64) (*Item, error) {
	if k.Open != nil {
		var err error
		if value, err = k.Open(ctx, k.Prefix+key, value); err != nil {
			return nil, &UnreadableError{err}
		}
	}
	it, err := k.Parse(value, revision)
	if err != nil {
		return nil, err
	}
	it.Key = key
	return it, nil
}
