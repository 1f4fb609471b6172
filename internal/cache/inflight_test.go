package cache

import (
	"testing"
)

// The feed takes the item of an in-flight write once, and only if its value is the one that was written.
func TestInflightWrite(t *testing.T) {
	r := newFixture(t)
	c := r.Cache("a")
	begin := func(key, value string) *InflightWrite {
		return c.BeginWrite(key, []byte(value), func(revision int64) *Item {
			it := NewItem([]byte(value), revision)
			it.Key, it.Labels = key, map[string]string{"inflight": "yes"}
			return it
		})
	}
	got := func(key string, revision int64) *Item {
		t.Helper()
		if err := r.WaitFor(t.Context(), revision); err != nil {
			t.Fatal(err)
		}
		return c.Get(key)
	}
	f := begin("x", "one")
	revision := r.put("/registry/a/x", "one")
	if it := got("x", revision); it.Labels["inflight"] != "yes" || it != f.Item(revision) || it.Revision != revision {
		t.Errorf("%+v", it)
	}
	revision = r.put("/registry/a/x", "one") // written by somebody else
	if it := got("x", revision); it.Labels["first"] != "o" || it.Revision != revision {
		t.Errorf("%+v", it)
	}
	begin("x", "mine")
	revision = r.put("/registry/a/x", "theirs")
	if it := got("x", revision); it.Labels["first"] != "t" {
		t.Errorf("%+v", it)
	}
	revision = r.put("/registry/a/x", "mine")
	if it := got("x", revision); it.Labels["inflight"] != "yes" {
		t.Errorf("%+v", it)
	}
	failed := begin("y", "failed")
	c.AbortWrite(failed)
	if it := got("y", r.put("/registry/a/y", "failed")); it.Labels["first"] != "f" {
		t.Errorf("%+v", it)
	}
	// The store ordered another write of the same value before this one: the feed must not take this one's item for it.
	f = begin("z", "same")
	f.Item(1 << 40)
	if it := got("z", r.put("/registry/a/z", "same")); it.Labels["first"] != "s" {
		t.Errorf("%+v", it)
	}
	if len(c.inflight) != 0 {
		t.Errorf("%d are left", len(c.inflight))
	}
}

// Newest returns the version written last in this process once the store has acknowledged it, or else what the feed observed.
func TestNewest(t *testing.T) {
	r := newFixture(t)
	c := r.Cache("a")
	first := r.put("/registry/a/x", "one")
	if err := r.WaitFor(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	f := c.BeginWrite("x", []byte("two"), func(revision int64) *Item { return NewItem([]byte("two"), revision) })
	if it := c.Newest("x"); it == nil || it.Revision != first {
		t.Errorf("before the store acknowledged it: %+v", it)
	}
	f.Item(first + 10)
	if it := c.Newest("x"); it != f.Item(first+10) {
		t.Errorf("before the feed observed it: %+v", it)
	}
	f.item.Store(NewItem([]byte("two"), first-1))
	if it := c.Newest("x"); it == nil || it.Revision != first {
		t.Errorf("when the feed observed a newer one: %+v", it)
	}
	if c.Newest("nothing") != nil {
		t.Error("found an object that does not exist")
	}
}
