package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"skiff/internal/store"
)

const (
	// A watch holds at most about this much that its reader has not taken; beyond, etcd holds it on disk.
	maxPendingEvents = 4096
	maxPendingBytes  = 8 << 20

	// progressRetry is how often a watch that does not answer a request for progress is asked again.
	progressRetry = 100 * time.Millisecond
)

// watch is the reader's side of one Watch.
type watch struct {
	prefix string
	after  int64
	out    chan store.Batch
	kick   chan struct{} // of capacity 1: wanted has changed
	wanted atomic.Int64  // a batch with at least this revision was asked for; 0 if none

	mu  sync.Mutex
	err error
}

// Watch implements store.Store. A slow reader is not cut off: what it does not take is read from disk later, until
// compaction passes it.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) store.Watch {
	w := &watch{prefix: prefix, after: after, out: make(chan store.Batch), kick: make(chan struct{}, 1)}
	if after < 0 {
		w.end(fmt.Errorf("watch %q: revision %d is negative", prefix, after))
		return w
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		w.end(store.ErrClosed)
		return w
	}
	s.watches[w] = struct{}{}
	s.running.Go(func() {
		err := s.follow(ctx, w)
		s.mu.Lock()
		delete(s.watches, w)
		s.mu.Unlock()
		w.end(err)
	})
	return w
}

func (s *Store) follow(ctx context.Context, w *watch) error {
	joined, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	err := s.engine.follow(joined, &pump{watch: w, seen: w.after})
	switch {
	case s.ctx.Err() != nil:
		return store.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	case storeError(err) != nil:
		return storeError(err)
	}
	return fmt.Errorf("watch %q: %w", w.prefix, err)
}

// Progress implements store.Store.
func (s *Store) Progress(ctx context.Context) error {
	revision, err := s.Revision(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		w.want(revision)
	}
	return nil
}

// want asks for a batch with at least the given revision. A watch from a future revision is not up to date yet and
// stays silent.
func (w *watch) want(revision int64) {
	if revision < w.after {
		return
	}
	w.wanted.Store(revision)
	select {
	case w.kick <- struct{}{}:
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

// pump holds what a watch has received and not yet delivered. While the reader is busy it gathers, so that the
// reader gets few large batches instead of many small ones.
type pump struct {
	watch *watch
	seen  int64 // every change up to here was delivered or is in events

	events []store.Event
	bytes  int
}

// take adds an event if it is under the prefix. The last events of a revision must be followed by reach.
func (p *pump) take(event store.Event) {
	if !strings.HasPrefix(event.Key, p.watch.prefix) {
		return
	}
	p.events = append(p.events, event)
	p.bytes += len(event.Key) + len(event.Value)
}

// reach says that all changes up to revision have been taken.
func (p *pump) reach(revision int64) { p.seen = max(p.seen, revision) }

func (p *pump) full() bool {
	return len(p.events) >= maxPendingEvents || p.bytes >= maxPendingBytes
}

// lagging is true while a report of progress is owed that the changes seen do not cover.
func (p *pump) lagging() bool { return p.watch.wanted.Load() > p.seen }

// due returns what to deliver now, if anything.
func (p *pump) due() (store.Batch, bool) {
	wanted := p.watch.wanted.Load()
	owed := wanted != 0 && wanted <= p.seen
	return store.Batch{Events: p.events, Revision: p.seen}, owed || len(p.events) > 0
}

func (p *pump) delivered(batch store.Batch) {
	p.events, p.bytes = nil, 0
	if wanted := p.watch.wanted.Load(); wanted <= batch.Revision {
		p.watch.wanted.CompareAndSwap(wanted, 0)
	}
}

// flush delivers what is due and returns when the reader has taken it.
func (p *pump) flush(ctx context.Context) error {
	batch, due := p.due()
	if !due {
		return nil
	}
	select {
	case p.watch.out <- batch:
		p.delivered(batch)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errStreamEnded is returned by run when its source has ended without saying why.
var errStreamEnded = errors.New("etcd ended the stream")

// run moves events from in, through take, to the reader. ask, if not nil, requests progress from the source; without
// it the source must tell of every revision by itself.
func run[T any](ctx context.Context, p *pump, in <-chan T, take func(T) error, ask func() error) error {
	var retry <-chan time.Time
	for {
		if ask != nil && retry == nil && p.lagging() {
			if err := ask(); err != nil {
				return err
			}
			retry = time.After(progressRetry)
		}
		source, out := in, p.watch.out
		batch, due := p.due()
		if !due {
			out = nil
		}
		if p.full() {
			source = nil
		}
		select {
		case out <- batch:
			p.delivered(batch)
		case received, ok := <-source:
			if !ok {
				return errStreamEnded
			}
			if err := take(received); err != nil {
				return err
			}
		case <-p.watch.kick:
		case <-retry:
			retry = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
