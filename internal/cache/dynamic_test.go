package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"skiff/internal/store"
)

// TestAddCache adds a cache while the feed runs: it has what was stored before, and observes each later change once.
func TestAddCache(t *testing.T) {
	r := newFixture(t)
	r.put("/registry/example.com/things/one", "a1")
	last := r.put("/registry/example.com/things/two", "b1")
	added, err := r.Add(t.Context(), letterKind("/registry/example.com/things/"))
	if err != nil {
		t.Fatal(err)
	}
	c := added[0]
	if c.Len() != 2 || r.Cache("example.com/things") != c {
		t.Fatalf("the new cache has %d objects", c.Len())
	}
	if s := c.Snapshot(); s.Revision < last {
		t.Errorf("the snapshot is of revision %d, before %d", s.Revision, last)
	}
	if _, err := c.After(last - 1); !errors.Is(err, ErrTooOld) {
		t.Errorf("a cursor before the list: %v", err)
	}
	cursor, err := c.After(last)
	if err != nil {
		t.Fatal(err)
	}
	r.put("/registry/example.com/things/two", "b2")
	r.delete("/registry/example.com/things/one")
	r.fresh()
	changes, err := cursor.Next(t.Context(), nil)
	if err != nil || len(changes) != 2 || changes[0].Type != Modified || changes[1].Type != Deleted {
		t.Errorf("%d changes, %v", len(changes), err)
	}
	if c.Len() != 1 {
		t.Errorf("the cache has %d objects", c.Len())
	}
}

// TestRemoveCache removes a cache: cursors get what it had, and then an end.
func TestRemoveCache(t *testing.T) {
	r := newFixture(t)
	added, err := r.Add(t.Context(), letterKind("/registry/example.com/things/"))
	if err != nil {
		t.Fatal(err)
	}
	c := added[0]
	_, cursor := c.SnapshotAndCursor()
	r.put("/registry/example.com/things/one", "a1")
	r.fresh()
	waiting := make(chan error)
	_, idle := c.SnapshotAndCursor()
	go func() {
		_, err := idle.Next(t.Context(), nil)
		waiting <- err
	}()
	if err := r.Remove(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; !errors.Is(err, ErrRemoved) {
		t.Errorf("the cursor that waited ended with %v", err)
	}
	if changes, err := cursor.Next(t.Context(), nil); err != nil || len(changes) != 1 {
		t.Errorf("%d changes, %v", len(changes), err)
	}
	if _, err := cursor.Next(t.Context(), nil); !errors.Is(err, ErrRemoved) {
		t.Errorf("the cursor ended with %v", err)
	}
	late, err := c.After(1 << 40)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Next(t.Context(), nil); !errors.Is(err, ErrRemoved) {
		t.Errorf("a cursor of the removed cache: %v", err)
	}
	before := c.Snapshot()
	r.put("/registry/example.com/things/two", "b1")
	r.fresh()
	if s := c.Snapshot(); s.Len() != 1 || s.Revision != before.Revision || r.Cache("example.com/things") != nil {
		t.Errorf("the removed cache has %d objects at revision %d, had %d at %d", s.Len(), s.Revision, before.Len(), before.Revision)
	}
}

// TestReplaceCache puts a cache in the place of another, whose readers lose nothing: it receives changes until it is removed, and keeps its state then.
func TestReplaceCache(t *testing.T) {
	r := newFixture(t)
	kind := letterKind("/registry/example.com/things/")
	first, err := r.Add(t.Context(), kind)
	if err != nil {
		t.Fatal(err)
	}
	old := first[0]
	r.put("/registry/example.com/things/one", "a1")
	r.fresh()
	_, cursor := old.SnapshotAndCursor()
	second, err := r.Add(t.Context(), kind)
	if err != nil {
		t.Fatal(err)
	}
	r.put("/registry/example.com/things/two", "b1")
	r.fresh()
	if old.Len() != 2 || second[0].Len() != 2 {
		t.Errorf("the old cache has %d objects, the new one %d", old.Len(), second[0].Len())
	}
	if changes, err := cursor.Next(t.Context(), nil); err != nil || len(changes) != 1 {
		t.Errorf("%d changes, %v", len(changes), err)
	}
	if err := r.Remove(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	r.put("/registry/example.com/things/three", "c1")
	r.fresh()
	if old.Len() != 2 || second[0].Len() != 3 || r.Cache("example.com/things") != second[0] {
		t.Errorf("after its removal the old cache has %d objects, the new one %d", old.Len(), second[0].Len())
	}
	if _, err := cursor.Next(t.Context(), nil); !errors.Is(err, ErrRemoved) {
		t.Errorf("the cursor ended with %v", err)
	}
}

// TestCachesComeAndGo adds and removes caches while others write: each new cache ends up with exactly what the store has.
func TestCachesComeAndGo(t *testing.T) {
	r := newFixture(t)
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Sprintf("/registry/example.com/things/%d-%d", w, n%7)
				if n%5 == 4 {
					_, _ = r.store.Delete(context.Background(), key, store.AnyRevision)
				} else if _, err := r.store.Put(context.Background(), key, fmt.Appendf(nil, "v%d", n), store.PutOptions{IfRevision: store.AnyRevision}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var c *Cache
	for range 50 {
		added, err := r.Add(t.Context(), letterKind("/registry/example.com/things/"))
		if err != nil {
			t.Fatal(err)
		}
		previous := c
		if c = added[0]; len(c.byKeyForTest()) > 28 {
			t.Fatalf("%d objects", c.Len())
		}
		if previous == nil {
			continue
		}
		if err := r.Remove(t.Context(), previous); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	writers.Wait()
	r.fresh()
	stored, err := r.store.List(t.Context(), "/registry/example.com/things/", store.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	have := c.byKeyForTest()
	for _, kv := range stored.KVs {
		if it := have[kv.Key[len("/registry/example.com/things/"):]]; it == nil || it.Revision != kv.Revision {
			t.Errorf("%s at revision %d is not in the cache: %v", kv.Key, kv.Revision, it)
		}
	}
	if len(have) != len(stored.KVs) {
		t.Errorf("the cache has %d objects, the store %d", len(have), len(stored.KVs))
	}
}

// byKeyForTest returns the objects of a cache by their keys.
func (c *Cache) byKeyForTest() map[string]*Item {
	found := map[string]*Item{}
	c.Snapshot().Ascend("", "", func(it *Item) bool {
		found[it.Key] = it
		return true
	})
	return found
}

// TestNormalized keeps what a schema makes of an item, until another schema comes.
func TestNormalized(t *testing.T) {
	it := NewItem([]byte("old"), 5)
	it.Key, it.Name = "a", "a"
	if it.Normalized(1) != nil {
		t.Error("normalized before anybody said so")
	}
	if same := it.SetNormalized(1, []byte("old")); same != it || it.Normalized(1) != it || it.Normalized(2) != nil {
		t.Error("an equal message is not the item itself")
	}
	other := it.SetNormalized(2, []byte("new"))
	if string(other.Message()) != "new" || other.Revision != 5 || other.Key != "a" || it.Normalized(2) != other || other.Normalized(2) != other || it.Normalized(1) != nil {
		t.Errorf("normalized to %+v", other)
	}
}
