package memory

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"

	"skiff/internal/store"
)

// maxScan bounds how many changes one step of a watch looks at, and so the size of a batch.
const maxScan = 1000

// watch is a cursor into the store's log.
type watch struct {
	prefix string
	out    chan store.Batch
	wake   chan struct{} // of capacity 1: there is something to look at

	mu     sync.Mutex
	wanted progressRequest // the last
	err    error
}

// progressRequest asks for a batch with at least a revision. They are numbered, so that one that comes while the last is
// being answered is not taken for it.
type progressRequest struct{ number, revision int64 }

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) store.Watch {
	w := &watch{prefix: prefix, out: make(chan store.Batch), wake: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	var refused error
	switch {
	case s.closed:
		refused = store.ErrClosed
	case after < 0:
		refused = fmt.Errorf("watch %q: revision %d is negative", prefix, after)
	case after+1 < s.compacted:
		refused = store.ErrCompacted
	case ctx.Err() != nil:
		refused = ctx.Err()
	}
	if refused != nil {
		w.end(refused)
		return w
	}
	s.watches[w] = struct{}{}
	s.running.Go(func() {
		err := s.follow(ctx, w, after)
		s.mu.Lock()
		delete(s.watches, w)
		s.mu.Unlock()
		w.end(err)
	})
	return w
}

// Progress implements store.Store.
func (s *Store) Progress(ctx context.Context) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.mayWrite(ctx); err != nil {
		return err
	}
	for w := range s.watches {
		w.mu.Lock()
		w.wanted = progressRequest{w.wanted.number + 1, s.revision}
		w.mu.Unlock()
		w.wakeUp()
	}
	return nil
}

// follow delivers what happens after cursor until the context ends, the store closes or compaction passes the cursor.
func (s *Store) follow(ctx context.Context, w *watch, cursor int64) error {
	answered := int64(0)
	for {
		w.mu.Lock()
		wanted := w.wanted
		w.mu.Unlock()
		changes, now, err := s.changesAfter(cursor)
		if err != nil {
			return err
		}
		if len(changes) > 0 {
			cursor = changes[len(changes)-1].Revision
		} else {
			cursor = max(cursor, now)
		}
		batch := store.Batch{Events: matching(changes, w.prefix), Revision: cursor}
		// A watch from a future revision is up to date only when the store has come that far.
		upToDate := cursor >= wanted.revision && now >= cursor
		if len(batch.Events) > 0 || upToDate && wanted.number != answered {
			select {
			case w.out <- batch:
			case <-ctx.Done():
				return ctx.Err()
			case <-s.done:
				return store.ErrClosed
			}
			if upToDate {
				answered = wanted.number
			}
		}
		if len(changes) > 0 {
			continue
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.done:
			return store.ErrClosed
		}
	}
}

// changesAfter returns the next changes and the store's revision. The changes are shared, nobody modifies them.
func (s *Store) changesAfter(cursor int64) ([]store.Event, int64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if cursor+1 < s.compacted {
		return nil, 0, store.ErrCompacted
	}
	first := sort.Search(len(s.log), func(i int) bool { return s.log[i].Revision > cursor })
	return s.log[first:min(first+maxScan, len(s.log))], s.revision, nil
}

func matching(changes []store.Event, prefix string) []store.Event {
	var events []store.Event
	for _, change := range changes {
		if strings.HasPrefix(change.Key, prefix) {
			events = append(events, change)
		}
	}
	return events
}

func (w *watch) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watch) end(err error) {
	w.mu.Lock()
	w.err = err
	w.mu.Unlock()
	close(w.out)
}

// Batches implements store.Watch.
func (w *watch) Batches() <-chan store.Batch { return w.out }

// Err implements store.Watch.
func (w *watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
