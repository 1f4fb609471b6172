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
	kick   chan struct{} // of capacity 1: progress was asked for

	mu     sync.Mutex
	wanted progressRequest // the last
	err    error
}

// progressRequest asks for a batch with at least a revision. They are numbered, so that one that comes while the last is
// being answered is not taken for it.
type progressRequest struct{ number, revision int64 }

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
	w.mu.Lock()
	w.wanted = progressRequest{w.wanted.number + 1, revision}
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

// pump holds what a watch has received and not yet delivered. While the reader is busy it gathers, so that the
// reader gets few large batches instead of many small ones.
type pump struct {
	watch *watch
	seen  int64 // every change up to here was delivered or is in events

	events   []store.Event
	bytes    int
	answered int64 // number of the last request for progress that a batch has answered
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

// owed returns the request for progress that has not been answered, if there is one.
func (p *pump) owed() (progressRequest, bool) {
	p.watch.mu.Lock()
	defer p.watch.mu.Unlock()
	return p.watch.wanted, p.watch.wanted.number != p.answered
}

// lagging is true while a report of progress is owed that what was seen does not cover.
func (p *pump) lagging() bool {
	request, owed := p.owed()
	return owed && request.revision > p.seen
}

// delivery is a batch and the request for progress that it answers.
type delivery struct {
	batch   store.Batch
	answers int64
}

// due returns what to deliver now, if anything.
func (p *pump) due() (delivery, bool) {
	d := delivery{store.Batch{Events: p.events, Revision: p.seen}, p.answered}
	request, owed := p.owed()
	if owed = owed && request.revision <= p.seen; owed {
		d.answers = request.number
	}
	return d, owed || len(p.events) > 0
}

func (p *pump) delivered(d delivery) {
	p.events, p.bytes, p.answered = nil, 0, d.answers
}

// flush delivers what is due and returns when the reader has taken it.
func (p *pump) flush(ctx context.Context) error {
	d, due := p.due()
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
		next, due := p.due()
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
