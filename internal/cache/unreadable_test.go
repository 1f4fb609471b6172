package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"skiff/internal/store/memory"
)

// lock opens values that begin with "sealed:", unless it is locked. To find out that it is takes time, unless nobody waits.
type lock struct {
	mu     sync.Mutex
	locked bool
	slow   time.Duration
}

var errLocked = errors.New("the key is missing")

func (l *lock) open(ctx context.Context, _ string, stored []byte) ([]byte, error) {
	l.mu.Lock()
	locked := l.locked
	l.mu.Unlock()
	value, sealed := strings.CutPrefix(string(stored), "sealed:")
	if sealed && locked {
		select {
		case <-ctx.Done():
		case <-time.After(l.slow):
		}
		return nil, errLocked
	}
	return []byte(value), nil
}

func (l *lock) set(locked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locked = locked
}

// sealedFixture returns a feed of a cached and an uncached kind whose values are opened by a lock.
func sealedFixture(t *testing.T, l *lock, prepare func(*fixture)) *fixture {
	r := &fixture{t: t, store: &breakableStore{Store: memory.New(memory.Options{})}}
	if prepare != nil {
		prepare(r)
	}
	a, b := letterKind("/registry/a/"), letterKind("/registry/b/")
	a.Open, b.Open, b.Uncached = l.open, l.open, true
	parse := a.Parse
	a.Parse = func(value []byte, revision int64) (*Item, error) {
		it, err := parse(value, revision)
		if err == nil {
			it.Uninitialized = strings.HasPrefix(string(value), "uninitialized")
		}
		return it, err
	}
	r.Feed = NewFeed(r.store, []Kind{a, b}, Options{Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		r.Close()
		r.store.Close()
	})
	<-r.Synced()
	return r
}

// recovered waits until nothing is unreadable.
func (r *fixture) recovered() {
	r.t.Helper()
	for end := time.Now().Add(20 * time.Second); len(r.unreadableCaches()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatal("objects are still unreadable")
		}
	}
}

func TestUnreadable(t *testing.T) {
	l := &lock{}
	r := sealedFixture(t, l, nil)
	c := r.Cache("a")
	r.put("/registry/a/x/1", "sealed:one")
	r.put("/registry/a/y/2", "sealed:two")
	r.put("/registry/a/y/3", "three")
	r.fresh()
	cursor, err := c.After(r.Revision())
	if err != nil {
		t.Fatal(err)
	}
	l.set(true)
	r.put("/registry/a/x/1", "sealed:changed")
	r.put("/registry/a/z/4", "sealed:four")
	r.put("/registry/a/y/3", "still clear")
	r.fresh()

	if err := c.Unreadable("x/1"); !errors.Is(err, errLocked) || c.Get("x/1") != nil {
		t.Errorf("the changed object: %v, %v", c.Get("x/1"), err)
	}
	if err := c.Unreadable("none"); err != nil || c.Get("y/2") == nil || string(c.Get("y/3").Message()) != "still clear" {
		t.Errorf("others: %v, %v, %v", err, c.Get("y/2"), c.Get("y/3"))
	}
	s := c.Snapshot()
	if err := s.Unreadable(""); !errors.Is(err, errLocked) || err.Error() != `unable to transform key "/registry/a/x/1": the key is missing` {
		t.Errorf("the snapshot: %v", err)
	}
	if s.Unreadable("y/") != nil || s.Unreadable("z/") == nil {
		t.Errorf("parts of the snapshot: %v, %v", s.Unreadable("y/"), s.Unreadable("z/"))
	}
	// A watcher must read the store's history, where it learns of the error: the object was not deleted.
	if changes, err := cursor.Next(t.Context(), nil); !errors.Is(err, ErrTooOld) {
		t.Errorf("a watcher got %v, %v", changes, err)
	}
	if errs := r.Feed.Unreadable(t.Context()); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), "2 of the registry/a cannot be read: unable to transform key ") {
		t.Errorf("unreadable are %v", errs)
	}

	r.delete("/registry/a/z/4") // what is deleted need not be read
	r.put("/registry/a/x/1", "clear")
	r.fresh()
	if err := c.Snapshot().Unreadable(""); err != nil || string(c.Get("x/1").Message()) != "clear" {
		t.Errorf("after other writes: %v, %v", err, c.Get("x/1"))
	}

	r.put("/registry/a/x/1", "sealed:last")
	r.fresh()
	l.set(false)
	r.RetryUnreadable()
	r.recovered()
	if got := string(c.Get("x/1").Message()); got != "last" {
		t.Errorf("with the key it is %q", got)
	}
	r.put("/registry/a/x/1", "sealed:more")
	r.fresh()
	if got := string(c.Get("x/1").Message()); got != "more" {
		t.Errorf("the next change made it %q", got)
	}
}

// TestUnreadableUninitialized has an object that waits for its initializers become unreadable: its former version is not served either.
func TestUnreadableUninitialized(t *testing.T) {
	l := &lock{}
	r := sealedFixture(t, l, nil)
	c := r.Cache("a")
	r.put("/registry/a/x/1", "sealed:uninitialized")
	r.fresh()
	if n := c.SnapshotUninitialized().Len(); n != 1 {
		t.Fatalf("%d objects wait", n)
	}
	l.set(true)
	r.put("/registry/a/x/1", "sealed:uninitialized still")
	r.fresh()
	if s := c.SnapshotUninitialized(); s.Len() != 0 || s.Unreadable("") == nil {
		t.Errorf("%d objects, %v", s.Len(), s.Unreadable(""))
	}
	l.set(false)
	r.RetryUnreadable()
	r.recovered()
	if n := c.SnapshotUninitialized().Len(); n != 1 || c.Get("x/1") != nil {
		t.Errorf("%d objects wait, %v", n, c.Get("x/1"))
	}
}

// TestUnreadableAtStart loads a store of which nothing can be read: the feed asks once, and does not wait for the rest.
func TestUnreadableAtStart(t *testing.T) {
	l := &lock{locked: true, slow: 50 * time.Millisecond}
	const objects = maxUnreadable + 500
	began := time.Now()
	r := sealedFixture(t, l, func(r *fixture) {
		for i := range objects {
			r.put(fmt.Sprintf("/registry/a/x/%d", i), "sealed:value")
		}
		r.put("/registry/b/x/1", "sealed:event")
	})
	if took := time.Since(began); took > objects*l.slow/2 {
		t.Errorf("the start took %v", took)
	}
	c := r.Cache("a")
	for _, key := range []string{"x/1", fmt.Sprint("x/", objects-1), "x/none"} { // beyond the bound, any object may be an unreadable one
		if c.Unreadable(key) == nil {
			t.Errorf("%s can be read", key)
		}
	}
	if n := len(c.Snapshot().unreadable); n > maxUnreadable+1 {
		t.Errorf("%d keys are remembered", n)
	}
	l.set(false)
	r.recovered()
	if c.Len() != objects || c.Unreadable("x/none") != nil {
		t.Errorf("%d objects, %v", c.Len(), c.Unreadable("x/none"))
	}
}

// TestUnreadableUncached has an event of an uncached kind that cannot be read: watchers read the store's history.
func TestUnreadableUncached(t *testing.T) {
	l := &lock{}
	r := sealedFixture(t, l, nil)
	c := r.Cache("b")
	r.put("/registry/b/x/1", "sealed:one")
	r.fresh()
	cursor, err := c.After(r.Revision())
	if err != nil {
		t.Fatal(err)
	}
	l.set(true)
	r.put("/registry/b/x/2", "sealed:two")
	r.fresh()
	if changes, err := cursor.Next(t.Context(), nil); !errors.Is(err, ErrTooOld) {
		t.Errorf("a watcher got %v, %v", changes, err)
	}
	if c.Len() != 2 {
		t.Errorf("%d objects are counted", c.Len())
	}
}
