package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"skiff/internal/store"
	"skiff/internal/store/memory"
)

// letterKind returns a kind whose objects are any text. The first letter is its only label and its only field.
func letterKind(prefix string) Kind {
	return Kind{
		Name: strings.Trim(prefix, "/"), Prefix: prefix,
		Parse: func(value []byte, revision int64) (*Item, error) {
			if strings.HasPrefix(string(value), "broken") {
				return nil, errors.New("cannot be read")
			}
			it := NewItem(value, revision)
			it.Labels = map[string]string{"first": string(value[:1])}
			it.Fields = []string{string(value[:1])}
			return it, nil
		},
		Decode: func([]byte) (runtime.Object, error) { return nil, errors.New("has no object") },
	}
}

// fixture is a feed over a store whose watches a test can break.
type fixture struct {
	*Feed
	t       testing.TB
	store   *breakableStore
	changes atomic.Int64 // number of calls of Options.Observe
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	r := &fixture{t: t, store: &breakableStore{Store: memory.New(memory.Options{})}}
	r.Feed = NewFeed(r.store, []Kind{letterKind("/registry/a/"), letterKind("/registry/b/specs/")},
		Options{Log: slog.New(slog.DiscardHandler), Observe: func(*Cache, *Change) { r.changes.Add(1) }})
	t.Cleanup(func() {
		r.Close()
		r.store.Close()
	})
	<-r.Synced()
	return r
}

func (r *fixture) put(key, value string) int64 {
	r.t.Helper()
	revision, err := r.store.Put(context.Background(), key, []byte(value), store.PutOptions{IfRevision: store.AnyRevision})
	if err != nil {
		r.t.Fatal(err)
	}
	return revision
}

func (r *fixture) delete(key string) int64 {
	r.t.Helper()
	revision, err := r.store.Delete(context.Background(), key, store.AnyRevision)
	if err != nil {
		r.t.Fatal(err)
	}
	return revision
}

func (r *fixture) fresh() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.Fresh(ctx); err != nil {
		r.t.Fatal(err)
	}
}

// breakableStore is a store whose watches a test can end with an error.
type breakableStore struct {
	store.Store
	mu      sync.Mutex
	watches []*breakableWatch
	opened  []int64 // the revisions watches began after
}

type breakableWatch struct {
	store.Watch
	cancel  context.CancelFunc
	batches chan store.Batch
	mu      sync.Mutex
	broken  error
}

func (b *breakableStore) Watch(ctx context.Context, prefix string, after int64) store.Watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &breakableWatch{Watch: b.Store.Watch(ctx, prefix, after), cancel: cancel, batches: make(chan store.Batch)}
	go func() {
		defer close(w.batches)
		for batch := range w.Watch.Batches() {
			if ctx.Err() != nil {
				continue // nothing may follow what was lost
			}
			select {
			case w.batches <- batch:
			case <-ctx.Done():
			}
		}
	}()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watches, b.opened = append(b.watches, w), append(b.opened, after)
	return w
}

func (w *breakableWatch) Batches() <-chan store.Batch { return w.batches }

func (w *breakableWatch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return w.broken
	}
	return w.Watch.Err()
}

// breakWatch ends the newest watch with an error.
func (b *breakableStore) breakWatch(err error) {
	b.mu.Lock()
	w := b.watches[len(b.watches)-1]
	b.mu.Unlock()
	w.mu.Lock()
	w.broken = err
	w.mu.Unlock()
	w.cancel()
}

// show returns a change as one line: type, key, value, revision and the previous value.
func show(c *Change) string {
	prev := "-"
	if c.Prev != nil {
		prev = string(c.Prev.Message())
	}
	return fmt.Sprintf("%s %s=%s@%d (%s)", c.Type, c.Item.Key, c.Item.Message(), c.Item.Revision, prev)
}

func next(t testing.TB, cur *Cursor, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var out []string
	for len(out) < n {
		changes, err := cur.Next(ctx, nil)
		if err != nil {
			t.Fatalf("after %v: %v", out, err)
		}
		for _, c := range changes {
			out = append(out, show(c))
		}
	}
	return out
}

func expect(t testing.TB, got []string, want ...string) {
	t.Helper()
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

func TestFeedRoutesByPrefix(t *testing.T) {
	r := newFixture(t)
	r.put("/registry/a/ns/one", "x1")
	r.put("/registry/b/specs/two", "y1")
	r.put("/registry/b/other/three", "z1") // nobody's
	r.put("/registry/a", "root")           // no object
	r.put("/elsewhere/a/x", "q")
	r.fresh()
	if it := r.Cache("a").Get("ns/one"); it == nil || string(it.Message()) != "x1" || it.Labels["first"] != "x" {
		t.Errorf("a: %+v", it)
	}
	if it := r.Cache("b/specs").Get("two"); it == nil || string(it.Message()) != "y1" {
		t.Errorf("b: %+v", it)
	}
	if r.Cache("a").Len() != 1 || r.Cache("b/specs").Len() != 1 || r.changes.Load() != 2 {
		t.Errorf("%d and %d objects, %d changes", r.Cache("a").Len(), r.Cache("b/specs").Len(), r.changes.Load())
	}
	if r.Cache("none") != nil {
		t.Error("a cache nobody asked for")
	}
}

func TestFeedLoadsExistingObjects(t *testing.T) {
	s := memory.New(memory.Options{})
	defer s.Close()
	const objects = 2*pageSize + 7 // several pages
	for i := range objects {
		value := fmt.Sprintf("v%d", i)
		if i == 5 {
			value = "broken" // is left out
		}
		if _, err := s.Put(t.Context(), fmt.Sprintf("/registry/a/%05d", i), []byte(value), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	f := NewFeed(s, []Kind{letterKind("/registry/a/")}, Options{Log: slog.New(slog.DiscardHandler)})
	defer f.Close()
	<-f.Synced()
	c := f.Cache("a")
	if c.Len() != objects-1 || f.Revision() != objects+1 {
		t.Errorf("%d objects at revision %d", c.Len(), f.Revision())
	}
	if it := c.Get("00006"); it == nil || it.Revision != 8 || it.Key != "00006" {
		t.Errorf("%+v", it)
	}
	// Changes before the load are not in memory.
	if _, err := c.After(objects); !errors.Is(err, ErrTooOld) {
		t.Errorf("a cursor before the load: %v", err)
	}
	if _, err := c.After(objects + 1); err != nil {
		t.Errorf("a cursor at the load: %v", err)
	}
}

// An object whose new value cannot be decoded counts as deleted: the new value cannot be served, and the old one is out of date.
func TestFeedSkipsUndecodableObjects(t *testing.T) {
	r := newFixture(t)
	c := r.Cache("a")
	_, cur := c.SnapshotAndCursor()
	first := r.put("/registry/a/x", "ok")
	bad := r.put("/registry/a/x", "broken")
	again := r.put("/registry/a/x", "well")
	r.put("/registry/a/y", "broken")
	r.fresh()
	expect(t, next(t, cur, 3),
		fmt.Sprintf("ADDED x=ok@%d (-)", first), fmt.Sprintf("DELETED x=ok@%d (ok)", bad), fmt.Sprintf("ADDED x=well@%d (-)", again))
	if c.Get("y") != nil || c.Len() != 1 {
		t.Error("an object that cannot be read is there")
	}
}

func TestFeedResumesABrokenWatch(t *testing.T) {
	r := newFixture(t)
	c := r.Cache("a")
	_, cur := c.SnapshotAndCursor()
	r.put("/registry/a/x", "1")
	r.fresh()
	r.store.breakWatch(errors.New("the network is gone"))
	second := r.put("/registry/a/x", "2")
	third := r.delete("/registry/a/x")
	r.fresh()
	expect(t, next(t, cur, 3), "ADDED x=1@2 (-)", fmt.Sprintf("MODIFIED x=2@%d (1)", second), fmt.Sprintf("DELETED x=2@%d (2)", third))
	if len(r.store.opened) != 2 || r.store.opened[1] != 2 {
		t.Errorf("watches began after %v", r.store.opened)
	}
}

// After a compaction of revisions that the cache has not observed, it relists and invalidates every cursor.
func TestFeedReloadsAfterCompaction(t *testing.T) {
	r := newFixture(t)
	c := r.Cache("a")
	r.put("/registry/a/x", "1")
	r.put("/registry/a/gone", "1")
	r.fresh()
	before := c.Snapshot()
	_, cur := c.SnapshotAndCursor()
	behind, err := c.After(1)
	if err != nil {
		t.Fatal(err)
	}
	r.store.mu.Lock() // no watch comes back while this is held
	w := r.store.watches[len(r.store.watches)-1]
	w.mu.Lock()
	w.broken = errors.New("gone")
	w.mu.Unlock()
	w.cancel()
	r.delete("/registry/a/gone")
	r.put("/registry/a/x", "2")
	last := r.put("/registry/a/new", "3")
	if err := r.store.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	r.store.mu.Unlock()
	r.fresh()
	after := c.Snapshot()
	if after.Revision != last || after.Len() != 2 || string(c.Get("x").Message()) != "2" || c.Get("gone") != nil {
		t.Errorf("at %d: %d objects", after.Revision, after.Len())
	}
	if before.Len() != 2 || before.Revision != 3 {
		t.Errorf("the snapshot from before has %d objects at %d", before.Len(), before.Revision)
	}
	for name, cur := range map[string]*Cursor{"up to date": cur, "behind": behind} {
		if _, err := cur.Next(t.Context(), nil); !errors.Is(err, ErrTooOld) {
			t.Errorf("a cursor that was %s: %v", name, err)
		}
	}
	if _, err := c.After(last - 1); !errors.Is(err, ErrTooOld) {
		t.Errorf("a cursor from before the compaction: %v", err)
	}
}

func TestFreshSeesAcknowledgedWrites(t *testing.T) {
	r := newFixture(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 50 {
				key := fmt.Sprintf("%d-%d", i, n)
				revision := r.put("/registry/a/"+key, "x")
				r.fresh()
				if r.Revision() < revision || r.Cache("a").Get(key) == nil {
					t.Errorf("%s at %d is not there at %d", key, revision, r.Revision())
				}
			}
		})
	}
	wg.Wait()
}

// The feed learns of revisions that change nothing below the root only by requesting progress.
func TestFreshAfterWritesElsewhere(t *testing.T) {
	r := newFixture(t)
	revision := r.put("/compact_rev_key", "x")
	r.fresh()
	if r.Revision() < revision {
		t.Errorf("at %d, want %d", r.Revision(), revision)
	}
}

func TestWaitForGivesUp(t *testing.T) {
	r := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.WaitFor(ctx, 1000); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting without time: %v", err)
	}
	if err := r.WaitFor(ctx, 1); err != nil {
		t.Errorf("waiting for what is there: %v", err)
	}
	done := make(chan error)
	go func() { done <- r.WaitFor(context.Background(), 1000) }()
	r.Close()
	if err := <-done; err == nil {
		t.Error("waiting outlived the feed")
	}
}

// The ring of an idle cache is trimmed, so that it does not hold old versions for ever.
func TestIdleCacheForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t)
		for i := range 1000 {
			r.put("/registry/a/x", fmt.Sprint(i))
		}
		r.fresh()
		c := r.Cache("a")
		if got := c.Stats(); got.Ring != 1000 || got.Objects != 1 {
			t.Fatalf("%+v", got)
		}
		time.Sleep(trimEvery + time.Second)
		if got := c.Stats().Ring; got != 1000 {
			t.Errorf("forgot too early: %d", got)
		}
		time.Sleep(2 * trimEvery)
		if got := c.Stats().Ring; got != ringMin {
			t.Errorf("holds %d changes", got)
		}
	})
}
