package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"skiff/internal/store"
)

const (
	// maxPendingEvents and maxPendingBytes bound what a watch holds for its reader; etcd keeps the rest on disk.
	maxPendingEvents = 4096
	maxPendingBytes  = 8 << 20

	// progressRetry is the time after which a progress request is repeated.
	progressRetry = 100 * time.Millisecond
)

// watch is one Watch of the store, as its reader sees it.
type watch struct {
	prefix string
	after  int64
	out    chan store.Batch
	kick   chan struct{} // of capacity 1: receives when progress was requested

	mu          sync.Mutex
	lastRequest progressRequest
	err         error
}

// progressRequest asks for a batch with at least a revision. Requests are numbered, so that one that comes while the last is
// being answered is not taken for it.
type progressRequest struct{ number, revision int64 }

// Watch implements store.Store. A slow reader does not break its watch: what it has not read is read from disk later, until
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
		err := s.runWatch(ctx, w)
		s.mu.Lock()
		delete(s.watches, w)
		s.mu.Unlock()
		w.end(err)
	})
	return w
}

func (s *Store) runWatch(ctx context.Context, w *watch) error {
	joined, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	err := s.engine.runWatch(joined, &watchBuffer{watch: w, seen: w.after})
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

// want requests a batch with at least the given revision. A watch from a future revision is not up to date yet and
// does not answer.
func (w *watch) want(revision int64) {
	if revision < w.after {
		return
	}
	w.mu.Lock()
	w.lastRequest = progressRequest{w.lastRequest.number + 1, revision}
	w.mu.Unlock()
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

// watchBuffer holds the events that a watch has received and not yet delivered. While the reader is busy they are batched, so that the
// reader gets few large batches instead of many small ones.
type watchBuffer struct {
	watch *watch
	seen  int64 // every change up to this revision was delivered or is in events

	events   []store.Event
	bytes    int
	answered int64 // number of the last progress request that a batch has answered
}

// add adds an event if its key has the prefix. After the last event of a revision advance must be called.
func (p *watchBuffer) add(event store.Event) {
	if !strings.HasPrefix(event.Key, p.watch.prefix) {
		return
	}
	p.events = append(p.events, event)
	p.bytes += len(event.Key) + len(event.Value)
}

// advance records that all changes up to revision have been added.
func (p *watchBuffer) advance(revision int64) { p.seen = max(p.seen, revision) }

func (p *watchBuffer) full() bool {
	return len(p.events) >= maxPendingEvents || p.bytes >= maxPendingBytes
}

// pendingRequest returns the progress request that has not been answered, if there is one.
func (p *watchBuffer) pendingRequest() (progressRequest, bool) {
	p.watch.mu.Lock()
	defer p.watch.mu.Unlock()
	return p.watch.lastRequest, p.watch.lastRequest.number != p.answered
}

// lagging reports whether a progress request is unanswered whose revision has not been reached.
func (p *watchBuffer) lagging() bool {
	request, pending := p.pendingRequest()
	return pending && request.revision > p.seen
}

// delivery is a batch and the number of the progress request that it answers.
type delivery struct {
	batch   store.Batch
	answers int64
}

// nextDelivery returns the batch to deliver now, if there is one.
func (p *watchBuffer) nextDelivery() (delivery, bool) {
	d := delivery{store.Batch{Events: p.events, Revision: p.seen}, p.answered}
	request, pending := p.pendingRequest()
	if pending = pending && request.revision <= p.seen; pending {
		d.answers = request.number
	}
	return d, pending || len(p.events) > 0
}

func (p *watchBuffer) delivered(d delivery) {
	p.events, p.bytes, p.answered = nil, 0, d.answers
}

// flush delivers the next batch, if there is one, and returns when the reader has received it.
func (p *watchBuffer) flush(ctx context.Context) error {
	d, due := p.nextDelivery()
	if !due {
		return nil
	}
	select {
	case p.watch.out <- d.batch:
		p.delivered(d)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errStreamEnded is returned by deliver when its source was closed without an error.
var errStreamEnded = errors.New("etcd ended the stream")

// deliver passes what it receives from in to take, which adds it to p, and delivers p's batches to the reader. ask, if not nil, requests progress
// from the source; without it the source must report every revision.
func deliver[T any](ctx context.Context, p *watchBuffer, in <-chan T, take func(T) error, ask func() error) error {
	var retry <-chan time.Time
	for {
		if ask != nil && retry == nil && p.lagging() {
			if err := ask(); err != nil {
				return err
			}
			retry = time.After(progressRetry)
		}
		source, out := in, p.watch.out
		next, due := p.nextDelivery()
		if !due {
			out = nil
		}
		if p.full() {
			source = nil
		}
		select {
		case out <- next.batch:
			p.delivered(next)
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
