package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/cache"
	"skiff/internal/store"
)

// Watch is a stream of the changes of a resource: from the cache or, for changes that are older than those the cache keeps, from the history of
// the store.
type Watch struct {
	// Patient has Next wait a little for further changes if there are many watches, so that it returns several at once. It must be set before the
	// first Next.
	Patient bool

	ctx       context.Context // of the whole watch
	r         *Registry
	selector  Selector
	cursor    *cache.Cursor
	following bool     // the cursor knows the topic to follow
	history   *history // nil once the cache covers what comes next
}

// Watch starts a stream of the changes after a revision.
func (r *Registry) Watch(ctx context.Context, s Selector, after int64) (*Watch, error) {
	if err := r.waitForRevision(ctx, after); err != nil {
		return nil, err
	}
	w := &Watch{ctx: ctx, r: r, selector: s}
	var err error
	if w.cursor, err = r.Cache.After(after); errors.Is(err, cache.ErrTooOld) {
		w.history, err = r.openHistory(ctx, s, after)
	}
	return w, err
}

// WatchFromNow returns the current objects, or an empty page unless initial is set, and starts a stream of the changes after them.
func (r *Registry) WatchFromNow(ctx context.Context, s Selector, initial bool) (page Page, w *Watch, err error) {
	now := r.Cache.SnapshotAndCursor
	if s.Uninitialized {
		now = r.Cache.SnapshotUninitializedAndCursor
	}
	snapshot, cursor := now()
	switch {
	case !initial:
		page.Revision = snapshot.Revision
	case r.Info.Uncached:
		page, err = r.fromStore(ctx, List{Selector: s}, snapshot.Revision, "")
	default:
		page, err = r.fromSnapshot(ctx, snapshot, List{Selector: s}, "")
	}
	return page, &Watch{ctx: ctx, r: r, selector: s, cursor: cursor}, err
}

// StartedWatch is a watch, and the initial state that is to be sent before its changes.
type StartedWatch struct {
	*Watch
	// Initial is to be sent before any change if SendInitial is set.
	Initial     Page
	SendInitial bool
}

// StartWatch starts a watch where its list options ask for. It sets opts.SendInitialEvents for a watch without it and without a resourceVersion: such
// a watch starts with the current state, as all did before that option existed.
func (r *Registry) StartWatch(ctx context.Context, s Selector, opts *metav1.ListOptions) (started StartedWatch, err error) {
	version := opts.ResourceVersion
	sendInitial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if opts.SendInitialEvents == nil && (version == "" || version == "0") {
		sendInitial = true
		opts.SendInitialEvents = &sendInitial
	}
	after, err := ParseResourceVersion(version)
	if err != nil {
		return started, err
	}
	if !sendInitial && after != 0 {
		started.Watch, err = r.Watch(ctx, s, after)
		return started, err
	}
	if err := r.WaitFor(ctx, version); err != nil {
		return started, err
	}
	started.SendInitial = sendInitial
	started.Initial, started.Watch, err = r.WatchFromNow(ctx, s, sendInitial)
	return started, err
}

// Next returns the next changes of the resource, appended to buf. They may include changes that are not selected: see Event. It returns
// cache.ErrRemoved after the last change if the resource is no longer served.
func (w *Watch) Next(ctx context.Context, buf []*cache.Change) ([]*cache.Change, error) {
	for {
		if w.history != nil {
			changes, err := w.history.next(ctx, buf)
			if err == nil {
				changes, err = w.complete(changes)
			}
			if err != nil {
				return nil, err
			}
			switch cursor, err := w.r.Cache.After(w.history.seen); {
			case err == nil:
				w.history.close()
				w.history, w.cursor = nil, cursor
			case errors.Is(err, cache.ErrRemoved) && len(changes) == 0:
				return nil, err
			}
			if len(changes) > 0 {
				return changes, nil
			}
			continue
		}
		if !w.following {
			w.cursor.Follow(w.selector.topic(!w.r.Info.Uncached && !w.r.converts()), w.Patient)
			w.following = true
		}
		changes, err := w.cursor.Next(ctx, buf)
		if err == nil {
			if changes, err = w.complete(changes); err == nil && len(changes) == 0 {
				continue
			}
		}
		if !errors.Is(err, cache.ErrTooOld) {
			return changes, err
		}
		// The reader is too far behind for the cache. The store may have kept more history.
		seen := w.cursor.Seen()
		w.leave()
		if w.history, err = w.r.openHistory(w.ctx, w.selector, seen); err != nil {
			return nil, err
		}
	}
}

// Convert returns changes that Next has returned with the items that the reader gets, for Event.
func (w *Watch) Convert(ctx context.Context, changes []*cache.Change) ([]*cache.Change, error) {
	return w.r.CurrentChanges(ctx, changes, w.selector.readsContent(), w.selector.Reading)
}

// Seen returns the revision up to which all changes have been returned.
func (w *Watch) Seen() int64 {
	if w.history != nil {
		return w.history.seen
	}
	return w.cursor.Seen()
}

// Close releases what the stream holds.
func (w *Watch) Close() {
	if w.history != nil {
		w.history.close()
	}
	w.leave()
}

func (w *Watch) leave() {
	if w.following {
		w.cursor.Leave()
		w.following = false
	}
}

// Event returns what a change is to a watcher with this selector: an object that begins to match is added, one that ceases to match is deleted, in its
// last matching state. The item is nil if the change is not selected.
func (s *Selector) Event(c *cache.Change) (cache.ChangeType, *cache.Item) {
	now := c.Type != cache.Deleted && s.Matches(c.Item)
	before := c.Prev != nil && s.Matches(c.Prev)
	switch {
	case now && before:
		return cache.Modified, c.Item
	case now:
		return cache.Added, c.Item
	case before && c.Type == cache.Deleted:
		return cache.Deleted, c.Item
	case before:
		return cache.Deleted, c.Prev.At(c.Item.Revision)
	}
	return "", nil
}

// expired returns the error for a revision that is too old to watch from.
func expired(revision int64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", revision))
}

// history replays changes from the history of the store. It holds the state that they start from, to know what a deleted object was, until the cache
// takes over.
type history struct {
	r      *Registry
	items  map[string]*cache.Item // nil for an uncached resource: see complete
	watch  store.Watch
	cancel context.CancelFunc
	seen   int64
}

// openHistory returns the changes after a revision that the store has kept.
func (r *Registry) openHistory(ctx context.Context, s Selector, after int64) (*history, error) {
	if after == 0 {
		return nil, expired(after)
	}
	h := &history{r: r, seen: after}
	if !r.Info.Uncached {
		if err := h.load(ctx, s); err != nil {
			return nil, err
		}
	}
	ctx, h.cancel = context.WithCancel(ctx)
	h.watch = r.store.Watch(ctx, r.prefix+s.prefix(r.Info), after)
	if err := r.store.Progress(ctx); err != nil {
		h.cancel()
		return nil, r.failure(err)
	}
	return h, nil
}

// load reads the state at the revision after which the changes start.
func (h *history) load(ctx context.Context, s Selector) error {
	h.items = map[string]*cache.Item{}
	for sc := h.r.newScan(Selector{Namespace: s.Namespace}, h.seen, ""); ; {
		got, err := sc.next(ctx)
		if errors.Is(err, store.ErrCompacted) {
			return expired(h.seen)
		}
		if err != nil {
			return h.r.failure(err)
		}
		for _, kv := range got.KVs {
			it, err := h.r.parse(ctx, strings.TrimPrefix(kv.Key, h.r.prefix), kv)
			if err != nil {
				return err
			}
			h.items[it.Key] = it
		}
		if !got.More {
			return nil
		}
	}
}

func (h *history) next(ctx context.Context, buf []*cache.Change) ([]*cache.Change, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case batch, ok := <-h.watch.Batches():
		if !ok {
			if errors.Is(h.watch.Err(), store.ErrCompacted) {
				return nil, expired(h.seen)
			}
			return nil, h.r.failure(h.watch.Err())
		}
		for _, e := range batch.Events {
			change, err := h.apply(ctx, e)
			if err != nil {
				return nil, err
			}
			if change != nil {
				buf = append(buf, change)
			}
		}
		h.seen = max(h.seen, batch.Revision)
		return buf, nil
	}
}

func (h *history) apply(ctx context.Context, e store.Event) (*cache.Change, error) {
	key := strings.TrimPrefix(e.Key, h.r.prefix)
	if h.items == nil {
		return h.uncached(ctx, key, e)
	}
	prev := h.items[key]
	if e.Deleted {
		if prev == nil {
			return nil, nil
		}
		delete(h.items, key)
		return &cache.Change{Type: cache.Deleted, Item: prev.At(e.Revision), Prev: prev}, nil
	}
	it, err := h.r.parse(ctx, key, store.KV{Key: e.Key, Value: e.Value, Revision: e.Revision})
	if err != nil {
		return nil, err
	}
	h.items[key] = it
	if prev == nil {
		return &cache.Change{Type: cache.Added, Item: it}, nil
	}
	return &cache.Change{Type: cache.Modified, Item: it, Prev: prev}, nil
}

func (h *history) uncached(ctx context.Context, key string, e store.Event) (*cache.Change, error) {
	if e.Deleted {
		return cache.NewUncachedChange(key, nil, e), nil
	}
	it, err := h.r.parse(ctx, key, store.KV{Key: e.Key, Value: e.Value, Revision: e.Revision})
	if err != nil {
		return nil, err
	}
	return cache.NewUncachedChange(key, it, e), nil
}

func (h *history) close() { h.cancel() }
