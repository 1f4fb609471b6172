package store_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"skiff/internal/store"
	"skiff/internal/store/memory"
)

// compactor is a RunCompactor whose intervals the test makes pass.
type compactor struct {
	t     *testing.T
	clock *clocktesting.FakeClock
}

const interval = 5 * time.Minute

func startCompactor(t *testing.T, s store.Store) *compactor {
	t.Helper()
	c := &compactor{t: t, clock: clocktesting.NewFakeClock(time.Now())}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		store.RunCompactor(ctx, s, store.CompactorOptions{Clock: c.clock, Log: slog.New(slog.DiscardHandler)})
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	c.await()
	return c
}

// await waits until the compactor waits for its clock, that is until its round is over.
func (c *compactor) await() {
	c.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !c.clock.HasWaiters(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatal("the compactor does not come to rest")
		}
	}
}

func (c *compactor) pass() {
	c.t.Helper()
	c.clock.Step(interval)
	c.await()
}

func put(t *testing.T, s store.Store, key string) int64 {
	t.Helper()
	revision, err := s.Put(t.Context(), key, []byte("v"), store.PutOptions{IfRevision: store.AnyRevision})
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// compactedTo reports whether history before revision is compacted and history from it on is readable.
func compactedTo(t *testing.T, s store.Store, revision int64) bool {
	t.Helper()
	_, before := s.List(t.Context(), "/", store.ListOptions{Revision: revision - 1})
	_, at := s.List(t.Context(), "/", store.ListOptions{Revision: revision})
	return errors.Is(before, store.ErrCompacted) && at == nil
}

func revision(t *testing.T, s store.Store) int64 {
	t.Helper()
	revision, err := s.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func TestCompactorKeepsOneInterval(t *testing.T) {
	s := memory.New(memory.Options{})
	defer s.Close()
	put(t, s, "/a")
	first := put(t, s, "/a")
	c := startCompactor(t, s)
	put(t, s, "/a")
	second := put(t, s, "/a")
	c.pass()
	if !compactedTo(t, s, first) {
		t.Errorf("after one interval, want history from %d", first)
	}
	put(t, s, "/a")
	c.pass()
	if !compactedTo(t, s, second+1) { // and CompactionKey itself
		t.Errorf("after two intervals, want history from %d", second+1)
	}
}

func TestCompactorWritesNothingWhenIdle(t *testing.T) {
	s := memory.New(memory.Options{})
	defer s.Close()
	put(t, s, "/a")
	c := startCompactor(t, s)
	c.pass() // compacts what was before
	idle := revision(t, s)
	for range 5 {
		c.pass()
	}
	if now := revision(t, s); now != idle {
		t.Errorf("an idle store moved from %d to %d", idle, now)
	}
	put(t, s, "/a")
	c.pass()
	if now := revision(t, s); now != idle+2 {
		t.Errorf("after a write the store is at %d, want %d", now, idle+2)
	}
}

func TestCompactorsTakeTurns(t *testing.T) {
	s := memory.New(memory.Options{})
	defer s.Close()
	put(t, s, "/a")
	one, two := startCompactor(t, s), startCompactor(t, s)
	keyRevision := func() int64 {
		kv, _, err := s.Get(t.Context(), store.CompactionKey)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		return kv.Revision
	}
	for range 3 {
		put(t, s, "/a")
		before := keyRevision()
		one.pass()
		written := keyRevision()
		if written == before {
			t.Error("the first did not compact")
		}
		two.pass()
		if keyRevision() != written {
			t.Error("both compacted in one interval")
		}
	}
	// When the first has stopped, the second takes over after an interval.
	put(t, s, "/a")
	before := keyRevision()
	two.pass()
	if keyRevision() == before {
		t.Error("the second did not take over")
	}
}

func TestCompactorGoesOnAfterAnError(t *testing.T) {
	s := &failingStore{Store: memory.New(memory.Options{})}
	defer s.Close()
	put(t, s, "/a")
	first := put(t, s, "/a")
	c := startCompactor(t, s)
	put(t, s, "/a")
	s.fail(true)
	c.pass()
	if compactedTo(t, s, first) {
		t.Fatal("compacted although it failed")
	}
	s.fail(false)
	put(t, s, "/a")
	c.pass()
	if !compactedTo(t, s, first) {
		t.Errorf("after the error, want history from %d", first)
	}
}

// failingStore is a store whose compaction can be made to fail.
type failingStore struct {
	store.Store
	mu    sync.Mutex
	fails bool
}

func (f *failingStore) fail(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails = on
}

func (f *failingStore) Compact(ctx context.Context, revision int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails {
		return errors.New("broken")
	}
	return f.Store.Compact(ctx, revision)
}
