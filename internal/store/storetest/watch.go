package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"skiff/internal/store"
)

// watcher reads a watch event by event and checks what must hold for every event.
type watcher struct {
	store.Watch
	h        *harness
	prefix   string
	last     int64 // revision of the last event
	reported int64 // revision of the last batch
	buffered []store.Event
}

func (h *harness) watch(prefix string, after int64) *watcher {
	return h.watchUntil(h.ctx, prefix, after)
}

func (h *harness) watchUntil(ctx context.Context, prefix string, after int64) *watcher {
	return &watcher{Watch: h.Watch(ctx, prefix, after), h: h, prefix: prefix, last: after, reported: after}
}

// batch waits for the next batch.
func (w *watcher) batch() store.Batch {
	w.h.t.Helper()
	select {
	case batch, ok := <-w.Batches():
		if !ok {
			w.h.t.Fatalf("watch of %q ended: %v", w.prefix, w.Err())
		}
		w.check(batch)
		return batch
	case <-time.After(waitTimeout):
		w.h.t.Fatalf("watch of %q: nothing came; the last revision was %d", w.prefix, w.reported)
		panic("not reached")
	}
}

func (w *watcher) check(batch store.Batch) {
	w.h.t.Helper()
	if batch.Revision < w.reported {
		w.h.t.Fatalf("a batch at %d after one at %d", batch.Revision, w.reported)
	}
	var expired store.Event // keys may expire together, at one revision in one batch
	for _, event := range batch.Events {
		together := event.Deleted && expired.Deleted && event.Revision == expired.Revision && event.Key != expired.Key
		switch {
		case event.Revision <= w.last && !together:
			w.h.t.Fatalf("%s comes after revision %d", showEvent(event), w.last)
		case event.Revision <= w.reported:
			w.h.t.Fatalf("%s comes after %d was reported as complete", showEvent(event), w.reported)
		case event.Revision > batch.Revision:
			w.h.t.Fatalf("%s is in a batch at %d", showEvent(event), batch.Revision)
		case len(event.Key) < len(w.prefix) || event.Key[:len(w.prefix)] != w.prefix:
			w.h.t.Fatalf("%s is not under %q", showEvent(event), w.prefix)
		case event.Deleted && event.Value != nil:
			w.h.t.Fatalf("%s has a value", showEvent(event))
		}
		w.last, expired = event.Revision, event
	}
	w.reported = batch.Revision
}

// next waits for the next event.
func (w *watcher) next() store.Event {
	w.h.t.Helper()
	for len(w.buffered) == 0 {
		w.buffered = w.batch().Events
	}
	event := w.buffered[0]
	w.buffered = w.buffered[1:]
	return event
}

func (w *watcher) want(events ...string) {
	w.h.t.Helper()
	for _, want := range events {
		if got := showEvent(w.next()); got != want {
			w.h.t.Fatalf("got %s, want %s", got, want)
		}
	}
}

// reach waits until everything up to revision has been reported, and fails the test if events come.
func (w *watcher) reach(revision int64) {
	w.h.t.Helper()
	for w.reported < revision {
		if batch := w.batch(); len(batch.Events) > 0 {
			w.h.t.Fatalf("got %s, want only progress", showEvents(batch.Events))
		}
	}
}

func (w *watcher) wantBroken(want error) {
	w.h.t.Helper()
	deadline := time.After(waitTimeout)
	for {
		select {
		case batch, ok := <-w.Batches():
			if ok {
				w.check(batch)
				continue
			}
			if err := w.Err(); !errors.Is(err, want) {
				w.h.t.Fatalf("watch of %q broke with %v, want %v", w.prefix, err, want)
			}
			return
		case <-deadline:
			w.h.t.Fatalf("watch of %q did not break", w.prefix)
		}
	}
}

func testWatchNow(t *testing.T, h *harness) {
	w := h.watch("/", h.revision())
	a := h.put("/a", "1")
	w.want(fmt.Sprintf(`create "/a"="1" at %d`, a))
	b := h.put("/a", "2")
	c := h.delete("/a")
	d := h.put("/a", "3")
	w.want(fmt.Sprintf(`update "/a"="2" at %d`, b), fmt.Sprintf(`delete "/a" at %d`, c), fmt.Sprintf(`create "/a"="3" at %d`, d))
}

func testWatchPast(t *testing.T, h *harness) {
	start := h.revision()
	a := h.put("/a", "1")
	b := h.put("/b", "2")
	c := h.put("/a", "3")
	d := h.delete("/b")
	w := h.watch("/", start)
	w.want(fmt.Sprintf(`create "/a"="1" at %d`, a), fmt.Sprintf(`create "/b"="2" at %d`, b),
		fmt.Sprintf(`update "/a"="3" at %d`, c), fmt.Sprintf(`delete "/b" at %d`, d))
	e := h.put("/e", "4")
	w.want(fmt.Sprintf(`create "/e"="4" at %d`, e))
	h.watch("/", c).want(fmt.Sprintf(`delete "/b" at %d`, d))
}

func testWatchFuture(t *testing.T, h *harness) {
	now := h.revision()
	w := h.watch("/", now+2)
	h.put("/a", "1")
	h.put("/a", "2")
	third := h.put("/a", "3")
	w.want(fmt.Sprintf(`update "/a"="3" at %d`, third))
}

func testWatchPrefixBoundary(t *testing.T, h *harness) {
	start := h.revision()
	h.put("/a/b", "")
	h.put("/a/bc/1", "")
	past := h.put("/a/b/1", "p")
	w := h.watch("/a/b/", start)
	w.want(fmt.Sprintf(`create "/a/b/1"="p" at %d`, past))
	h.put("/a/b0", "")
	h.put("/a/bc/2", "")
	live := h.put("/a/b/", "l")
	w.want(fmt.Sprintf(`create "/a/b/"="l" at %d`, live))
}

func testWatchEverything(t *testing.T, h *harness) {
	w := h.watch("", h.revision())
	a := h.put("\x00", "low")
	b := h.put("\xff\xff\xff", "high")
	w.want(fmt.Sprintf(`create "\x00"="low" at %d`, a), fmt.Sprintf(`create "\xff\xff\xff"="high" at %d`, b))
}

func testWatchLongHistory(t *testing.T, h *harness) {
	const writes = 2500
	start := h.revision()
	h.putMany(writes, 32)
	w, other := h.watch("/many/", start), h.watch("/other/", start)
	for i := range int64(writes) {
		if event := w.next(); event.Revision != start+1+i {
			t.Fatalf("got %s, want revision %d", showEvent(event), start+1+i)
		}
	}
	h.progress()
	other.reach(start + writes)
}

// putMany writes keys /many/… with several writers at once, so that engines that sync to a disk are not slow.
func (h *harness) putMany(writes, writers int) {
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			for i := n; i < writes; i += writers {
				if _, err := h.Put(h.ctx, fmt.Sprintf("/many/%d", i), []byte("v"), store.PutOptions{}); err != nil {
					h.t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if h.t.Failed() {
		h.t.FailNow()
	}
}

// testWatchConcurrentWriters writes from many goroutines, with watches that begin meanwhile, and requires each watch to report
// exactly the history that the writers made.
func testWatchConcurrentWriters(t *testing.T, h *harness) {
	const writers, each = 8, 60
	start := h.revision()
	early := h.watch("/w/", start)

	var mu sync.Mutex
	want := map[int64]string{}
	var late []*watcher
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			key := fmt.Sprintf("/w/%d", n)
			for i := range each {
				value := fmt.Sprint(i)
				revision, err := h.Put(h.ctx, key, []byte(value), store.PutOptions{IfRevision: store.AnyRevision})
				line := fmt.Sprintf("%q=%q", key, value)
				if err == nil && i%7 == 6 {
					mu.Lock()
					want[revision] = line
					mu.Unlock()
					revision, err = h.Delete(h.ctx, key, revision)
					line = fmt.Sprintf("delete %q", key)
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				want[revision] = line
				if i%20 == 10 {
					late = append(late, h.watch("/w/", revision))
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	end := h.revision()
	for _, w := range append(late, early) {
		for revision := w.last + 1; revision <= end; revision++ {
			event := w.next()
			got := fmt.Sprintf("%q=%q", event.Key, event.Value)
			if event.Deleted {
				got = fmt.Sprintf("delete %q", event.Key)
			}
			if event.Revision != revision || got != want[revision] {
				t.Fatalf("got %s at %d, want %s at %d", got, event.Revision, want[revision], revision)
			}
		}
	}
}

func testWatchResume(t *testing.T, h *harness) {
	const writes = 300
	start := h.revision()
	h.putMany(writes, 16)
	// Each watch is cancelled after one batch, and the next resumes after it.
	for at := start; at < start+writes; {
		ctx, cancel := context.WithCancel(h.ctx)
		w := h.watchUntil(ctx, "/many/", at)
		for _, event := range w.batch().Events {
			if event.Revision != at+1 {
				t.Fatalf("got %s, want revision %d", showEvent(event), at+1)
			}
			at++
		}
		if w.reported != at {
			t.Fatalf("reported %d after events up to %d", w.reported, at)
		}
		cancel()
		w.wantBroken(context.Canceled)
	}
}

func testWatchSlowReader(t *testing.T, h *harness) {
	const writes = 6000 // more than any engine buffers
	start := h.revision()
	w := h.watch("/many/", start)
	h.putMany(writes, 64)
	for i := range int64(writes) {
		if event := w.next(); event.Revision != start+1+i {
			t.Fatalf("got %s, want revision %d", showEvent(event), start+1+i)
		}
	}
}

func testWatchContext(t *testing.T, h *harness) {
	ctx, cancel := context.WithCancel(h.ctx)
	idle := h.watchUntil(ctx, "/", h.revision())
	unread := h.watchUntil(ctx, "/", h.revision())
	h.put("/a", "1")
	cancel()
	idle.wantBroken(context.Canceled)
	unread.wantBroken(context.Canceled)
	h.watchUntil(ctx, "/", h.revision()).wantBroken(context.Canceled)

	short, cancel := context.WithTimeout(h.ctx, 10*time.Millisecond)
	defer cancel()
	h.watchUntil(short, "/", h.revision()).wantBroken(context.DeadlineExceeded)
	h.put("/b", "1") // the store lives on
}

func testWatchClose(t *testing.T, h *harness) {
	var all []*watcher
	for range 10 {
		all = append(all, h.watch("/", h.revision()))
	}
	h.put("/a", "1")
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		w.wantBroken(store.ErrClosed)
	}
}

func testProgressIdle(t *testing.T, h *harness) {
	h.put("/a", "1")
	now := h.revision()
	w := h.watch("/b/", now)
	h.progress()
	if batch := w.batch(); len(batch.Events) != 0 || batch.Revision != now {
		t.Errorf("got %d events at %d, want a report of %d", len(batch.Events), batch.Revision, now)
	}
	h.progress()
	if batch := w.batch(); len(batch.Events) != 0 || batch.Revision != now {
		t.Errorf("asked again: got %d events at %d, want a report of %d", len(batch.Events), batch.Revision, now)
	}
}

func testProgressElsewhere(t *testing.T, h *harness) {
	start := h.revision()
	w, past := h.watch("/b/", start), (*watcher)(nil)
	for i := range 20 {
		h.put("/a", fmt.Sprint(i))
		if i == 10 {
			past = h.watch("/b/", start)
		}
		if i%5 == 0 {
			h.progress()
		}
	}
	h.progress()
	w.reach(h.revision())
	past.reach(h.revision())
}

func testProgressOrder(t *testing.T, h *harness) {
	start := h.revision()
	w := h.watch("/a/", start)
	mine := h.put("/a/1", "1")
	h.put("/b/1", "1")
	other := h.put("/b/2", "2")
	h.progress()
	w.want(fmt.Sprintf(`create "/a/1"="1" at %d`, mine))
	w.reach(other)
	later := h.put("/a/2", "2")
	w.want(fmt.Sprintf(`create "/a/2"="2" at %d`, later))
}
