package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"skiff/internal/store"
	"skiff/internal/store/memory"
)

// newUncachedFixture returns a fixture whose kind a is uncached and whose store holds some objects at the start.
func newUncachedFixture(t testing.TB, keys ...string) *fixture {
	t.Helper()
	r := &fixture{t: t, store: &breakableStore{Store: memory.New(memory.Options{})}}
	for _, key := range keys {
		r.put(key, "v")
	}
	a := letterKind("/registry/a/")
	a.Uncached = true
	r.Feed = NewFeed(r.store, []Kind{a, letterKind("/registry/b/specs/")},
		Options{Log: slog.New(slog.DiscardHandler), Observe: func(*Cache, *Change) { r.changes.Add(1) }})
	t.Cleanup(func() {
		r.Close()
		r.store.Close()
	})
	<-r.Synced()
	return r
}

// Loading reads no more than the first page of an uncached kind, counts its objects, and loads the kinds after it.
func TestUncachedLoad(t *testing.T) {
	keys := []string{"/registry/b/specs/x", "/registry/b/specs/y"}
	for i := range 3 * pageSize {
		keys = append(keys, fmt.Sprintf("/registry/a/k%05d", i))
	}
	r := newUncachedFixture(t, keys...)
	a, b := r.Cache("a"), r.Cache("b/specs")
	if a.Len() != 3*pageSize || a.Stats().Objects != 3*pageSize || a.Stats().Bytes != 3*pageSize {
		t.Errorf("counted %+v", a.Stats())
	}
	if b.Len() != 2 {
		t.Errorf("%d of the other kind", b.Len())
	}
	r.delete("/registry/a/k00000")
	r.put("/registry/a/k00001", "changed")
	r.put("/registry/a/new", "new")
	r.put("/registry/a/newer", "new")
	r.fresh()
	if a.Len() != 3*pageSize+1 {
		t.Errorf("%d after a deletion, a change and two additions", a.Len())
	}
	if a.Get("new") != nil || a.Newest("new") != nil {
		t.Error("an object is kept")
	}
}

// Watchers get no events of objects that could not be decoded.
func TestUncachedUnreadable(t *testing.T) {
	r := newUncachedFixture(t)
	c := r.Cache("a")
	_, cursor := c.SnapshotAndCursor()
	r.put("/registry/a/x", "broken")
	r.put("/registry/a/x", "whole")
	r.put("/registry/a/y", "broken")
	r.delete("/registry/a/y")
	r.put("/registry/a/z", "end")
	r.fresh()
	var got []string
	for len(got) == 0 || !strings.HasPrefix(got[len(got)-1], "ADDED z") {
		changes, err := cursor.Next(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range changes {
			complete, err := c.Complete(t.Context(), change)
			if err != nil {
				t.Fatal(err)
			}
			if complete != nil {
				got = append(got, fmt.Sprintf("%s %s", complete.Type, complete.Item.Key))
			}
		}
	}
	if joined := strings.Join(got, ", "); joined != "ADDED x, ADDED z" {
		t.Error(joined)
	}
}

// The bound in bytes of an uncached kind's ring includes the previous versions that were read for watchers.
func TestUncachedRingBytes(t *testing.T) {
	r := newUncachedFixture(t)
	c := r.Cache("a")
	large := strings.Repeat("x", uncachedRing.bytes/10)
	for i := range 8 {
		r.put(fmt.Sprintf("/registry/a/%d", i), large)
	}
	r.fresh()
	if got := c.Stats().Ring; got != 8 {
		t.Fatalf("the ring holds %d", got)
	}
	cursor, err := c.After(r.Revision())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		r.delete(fmt.Sprintf("/registry/a/%d", i))
	}
	r.fresh()
	if got := c.Stats().Ring; got != 16 {
		t.Fatalf("the ring holds %d", got)
	}
	changes, err := cursor.Next(t.Context(), nil)
	if err != nil || len(changes) != 8 {
		t.Fatalf("%d, %v", len(changes), err)
	}
	first := changes[0]
	var reading sync.WaitGroup
	for _, change := range changes {
		for range 4 {
			reading.Go(func() {
				complete, err := c.Complete(t.Context(), change)
				if err != nil || complete.Type != Deleted || string(complete.Item.Message()) != large || complete.Item.Revision != change.Item.Revision || complete.Prev == nil {
					t.Errorf("%+v, %v", complete, err)
				}
			})
		}
	}
	reading.Wait()
	c.mu.Lock()
	held, n := c.ring.bytes, c.ring.next-c.ring.first
	sum := 0
	for s := c.ring.first; s < c.ring.next; s++ {
		sum += c.ring.at(s).size()
	}
	c.mu.Unlock()
	if held > uncachedRing.bytes || held != sum || n >= 8 {
		t.Errorf("the ring holds %d bytes in %d changes, and counts %d", sum, n, held)
	}
	if again, err := c.Complete(t.Context(), first); err != nil || again.Prev == nil {
		t.Errorf("a change that the ring has dropped: %+v, %v", again, err)
	}
	if _, err := c.After(1); !errors.Is(err, ErrTooOld) {
		t.Errorf("a cursor from the start: %v", err)
	}
}

// A reader that is cancelled while it reads the previous version does not keep others from reading it.
func TestUncachedGivesUp(t *testing.T) {
	r := newUncachedFixture(t)
	c := r.Cache("a")
	_, cursor := c.SnapshotAndCursor()
	r.put("/registry/a/x", "old")
	r.put("/registry/a/x", "new")
	r.fresh()
	changes, err := cursor.Next(t.Context(), nil)
	if err != nil || len(changes) != 2 {
		t.Fatalf("%v, %v", changes, err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Complete(canceled, changes[1]); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	complete, err := c.Complete(t.Context(), changes[1])
	if err != nil || complete.Type != Modified || string(complete.Prev.Message()) != "old" {
		t.Errorf("%+v, %v", complete, err)
	}
	if err := r.store.Compact(t.Context(), r.Revision()); err != nil {
		t.Fatal(err)
	}
	if again, err := c.Complete(t.Context(), changes[1]); err != nil || again != complete {
		t.Errorf("what was read before the compaction: %+v, %v", again, err)
	}
	r.delete("/registry/a/x")
	r.fresh()
	if err := r.store.Compact(t.Context(), r.Revision()); err != nil {
		t.Fatal(err)
	}
	changes, err = cursor.Next(t.Context(), nil)
	if err != nil || len(changes) != 1 {
		t.Fatalf("%v, %v", changes, err)
	}
	if _, err := c.Complete(t.Context(), changes[0]); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("what was not read before the compaction: %v", err)
	}
}
