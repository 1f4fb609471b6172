package memory

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"

	"skiff/internal/store"
)

// maxScan bounds how many changes one step of a watch reads, and so the size of a batch.
const maxScan = 1000

// watch is one Watch of the store: a cursor into its log.
type watch struct {
	prefix string
	out    chan store.Batch
	wake   chan struct{} // of capacity 1: receives when there may be changes or a progress request

	mu          sync.Mutex
	lastRequest progressRequest
	err         error
}

// progressRequest asks for a batch with at least a revision. Requests are numbered, so that one that comes while the last is
// being answered is not taken for it.
type progressRequest struct{ number, revision int64 }

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) store.Watch {
	w := &watch{prefix: prefix, out: make(chan store.Batch), wake: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	var refusal error
	switch {
	case s.closed:
		refusal = store.ErrClosed
	case after < 0:
		refusal = fmt.Errorf("watch %q: revision %d is negative", prefix, after)
	case after+1 < s.compacted:
		refusal = store.ErrCompacted
	case ctx.Err() != nil:
		refusal = ctx.Err()
	}
	if refusal != nil {
		w.end(refusal)
		return w
	}
	s.watches[w] = struct{}{}
	s.running.Go(func() {
		err := s.runWatch(ctx, w, after)
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
	if err := s.checkOpen(ctx); err != nil {
		return err
	}
	for w := range s.watches {
		w.mu.Lock()
		w.lastRequest = progressRequest{w.lastRequest.number + 1, s.revision}
		w.mu.Unlock()
		w.wakeUp()
	}
	return nil
}

// runWatch delivers the changes after cursor until the context ends, the store closes or compaction passes the cursor.
func (s *Store) runWatch(ctx context.Context, w *watch, cursor int64) error {
	answeredNumber := int64(0)
	for {
		w.mu.Lock()
		request := w.lastRequest
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
		upToDate := cursor >= request.revision && now >= cursor
		if len(batch.Events) > 0 || upToDate && request.number != answeredNumber {
			select {
			case w.out <- batch:
			case <-ctx.Done():
				return ctx.Err()
			case <-s.done:
				return store.ErrClosed
			}
			if upToDate {
				answeredNumber = request.number
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

// changesAfter returns the next changes and the store's revision. The changes are shared and must not be modified.
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
