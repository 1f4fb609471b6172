package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"skiff/internal/store"
)

// Compare makes the same random calls on two engines and requires the same answers, word for word. It prints its seed;
// SEED in the environment replays one.
func Compare(t *testing.T, steps int, openModel, openSubject func(t *testing.T) store.Store) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		given, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SEED: %v", err)
		}
		seed = given
	}
	t.Logf("SEED=%d", seed)
	g := &generator{rand: rand.New(rand.NewPCG(seed, 0))}
	model, subject := newHarness(t, openModel), newHarness(t, openSubject)
	// Two watches from the start, and more as they come; compared at the end.
	g.watches = []watchFrom{{"/", 1}, {"/a/", 1}}
	for step := range steps {
		call := g.next()
		want, got := call.do(model), call.do(subject)
		if want != got {
			t.Fatalf("SEED=%d, step %d: %s\nthe model answers:\n%s\nthe subject answers:\n%s", seed, step, call.name, want, got)
		}
		g.learn(model.revision())
	}
	for _, from := range g.watches {
		want, got := drain(model, from), drain(subject, from)
		if want != got {
			t.Fatalf("SEED=%d: watch of %q after %d\nthe model reports:\n%s\nthe subject reports:\n%s", seed, from.prefix, from.after, want, got)
		}
	}
}

// call is one step: its description, and the function that makes it and returns the answer as text.
type call struct {
	name string
	do   func(*harness) string
}

type watchFrom struct {
	prefix string
	after  int64
}

// generator makes calls that are likely to conflict: few keys, revisions near those that exist.
type generator struct {
	rand     *rand.Rand
	revision int64
	watches  []watchFrom
}

func (g *generator) learn(revision int64) { g.revision = revision }

func (g *generator) next() call {
	switch n := g.rand.IntN(100); {
	case n < 40:
		return g.put()
	case n < 60:
		return g.delete()
	case n < 70:
		return g.get()
	case n < 93:
		return g.list()
	case n < 95:
		return g.compact()
	default:
		return g.watch()
	}
}

func (g *generator) key() string {
	return g.pick("/a/", "/a/b/", "/b/", "/a/bc/", "\xff") + strconv.Itoa(g.rand.IntN(6))
}

func (g *generator) prefix() string {
	return g.pick("", "/", "/a/", "/a/b", "/a/b/", "/a/bc/", "/b/", "\xff", "/none/")
}

func (g *generator) pick(from ...string) string { return from[g.rand.IntN(len(from))] }

// nearRevision returns a revision that often exists, and sometimes is compacted or in the future.
func (g *generator) nearRevision() int64 {
	return max(0, g.revision+2-int64(g.rand.IntN(30)))
}

func (g *generator) put() call {
	key, value := g.key(), strconv.Itoa(g.rand.IntN(1000))
	blind, guess := g.rand.IntN(3), g.nearRevision()
	return call{fmt.Sprintf("put %q=%q guard %d/%d", key, value, blind, guess), func(h *harness) string {
		revision, err := h.Put(h.ctx, key, []byte(value), store.PutOptions{IfRevision: h.guard(key, blind, guess)})
		return fmt.Sprint(revision, " ", showError(err))
	}}
}

func (g *generator) delete() call {
	key, blind, guess := g.key(), g.rand.IntN(3), g.nearRevision()
	return call{fmt.Sprintf("delete %q guard %d/%d", key, blind, guess), func(h *harness) string {
		revision, err := h.Delete(h.ctx, key, h.guard(key, blind, guess))
		return fmt.Sprint(revision, " ", showError(err))
	}}
}

// guard returns the key's revision, AnyRevision, or a guess.
func (h *harness) guard(key string, how int, guess int64) int64 {
	switch how {
	case 0:
		kv, _, _ := h.Get(h.ctx, key)
		return kv.Revision
	case 1:
		return store.AnyRevision
	}
	return guess
}

func (g *generator) get() call {
	key := g.key()
	return call{fmt.Sprintf("get %q", key), func(h *harness) string {
		kv, revision, err := h.Get(h.ctx, key)
		return fmt.Sprint(show(kv), " ", revision, " ", showError(err))
	}}
}

func (g *generator) list() call {
	prefix := g.prefix()
	opts := store.ListOptions{Limit: int64(max(0, g.rand.IntN(8)-2))}
	if g.rand.IntN(2) == 0 {
		opts.Revision = g.nearRevision()
	}
	if g.rand.IntN(3) == 0 {
		opts.From = prefix + strconv.Itoa(g.rand.IntN(6))
	}
	return call{fmt.Sprintf("list %q %+v", prefix, opts), func(h *harness) string {
		result, err := h.List(h.ctx, prefix, opts)
		return showList(result) + showError(err)
	}}
}

func (g *generator) compact() call {
	revision := g.revision + 1 - int64(g.rand.IntN(25))
	return call{fmt.Sprintf("compact %d", revision), func(h *harness) string {
		return showError(h.Compact(h.ctx, revision))
	}}
}

// watch plans a watch that is opened at the end, from a revision near now; later compactions may pass it.
func (g *generator) watch() call {
	from := watchFrom{g.prefix(), min(g.nearRevision(), g.revision)}
	if len(g.watches) < 40 {
		g.watches = append(g.watches, from)
	} else {
		g.watches[g.rand.IntN(len(g.watches))] = from
	}
	return call{"plan a watch", func(h *harness) string { return "" }}
}

// drain returns what a watch reports up to the current revision.
func drain(h *harness, from watchFrom) string {
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	w := h.watchUntil(ctx, from.prefix, from.after)
	now := h.revision()
	h.progress()
	var events []store.Event
	timeout := time.After(waitTimeout)
	for w.reported < now {
		select {
		case batch, ok := <-w.Batches():
			if !ok {
				return showEvents(events) + showError(w.Err())
			}
			w.check(batch)
			events = append(events, batch.Events...)
		case <-timeout:
			return showEvents(events) + "then nothing"
		}
	}
	return showEvents(events)
}

// showError returns the text of the contract's errors, and the same text for all others.
func showError(err error) string {
	if err == nil {
		return "ok"
	}
	var conflict *store.ConflictError
	if errors.As(err, &conflict) {
		if conflict.Current == nil {
			return fmt.Sprintf("conflict on %q: it does not exist", conflict.Key)
		}
		return fmt.Sprintf("conflict on %q: there is %s", conflict.Key, show(*conflict.Current))
	}
	for _, known := range []error{store.ErrNotFound, store.ErrCompacted, store.ErrFutureRevision, store.ErrTooLarge, store.ErrFull, store.ErrClosed} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "some other error"
}
