package cache

import (
	"testing"
)

// What a writer foresees is taken as it is, once, and only if that is what was written.
func TestForeseen(t *testing.T) {
	r := newRig(t)
	c := r.Cache("a")
	foresee := func(key, value string) *Foreseen {
		return c.Foresee(key, []byte(value), func(revision int64) *Item {
			it := NewItem([]byte(value), revision)
			it.Key, it.Labels = key, map[string]string{"foreseen": "yes"}
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
	f := foresee("x", "one")
	revision := r.put("/registry/a/x", "one")
	if it := got("x", revision); it.Labels["foreseen"] != "yes" || it != f.Item(revision) || it.Revision != revision {
		t.Errorf("%+v", it)
	}
	revision = r.put("/registry/a/x", "one") // written by somebody else
	if it := got("x", revision); it.Labels["first"] != "o" || it.Revision != revision {
		t.Errorf("%+v", it)
	}
	foresee("x", "mine")
	revision = r.put("/registry/a/x", "theirs")
	if it := got("x", revision); it.Labels["first"] != "t" {
		t.Errorf("%+v", it)
	}
	revision = r.put("/registry/a/x", "mine")
	if it := got("x", revision); it.Labels["foreseen"] != "yes" {
		t.Errorf("%+v", it)
	}
	failed := foresee("y", "failed")
	c.Forget(failed)
	if it := got("y", r.put("/registry/a/y", "failed")); it.Labels["first"] != "f" {
		t.Errorf("%+v", it)
	}
	// The writer learned its revision, then the same was written before in the store's order: the item is not that one's.
	f = foresee("z", "same")
	f.Item(1 << 40)
	if it := got("z", r.put("/registry/a/z", "same")); it.Labels["first"] != "s" {
		t.Errorf("%+v", it)
	}
	if len(c.foreseen) != 0 {
		t.Errorf("%d are left", len(c.foreseen))
	}
}

// The newest version known is what was written here last, once the store has taken it, or else what the feed told.
func TestNewest(t *testing.T) {
	r := newRig(t)
	c := r.Cache("a")
	first := r.put("/registry/a/x", "one")
	if err := r.WaitFor(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	f := c.Foresee("x", []byte("two"), func(revision int64) *Item { return NewItem([]byte("two"), revision) })
	if it := c.Newest("x"); it == nil || it.Revision != first {
		t.Errorf("before the store took it: %+v", it)
	}
	f.Item(first + 10)
	if it := c.Newest("x"); it != f.Item(first+10) {
		t.Errorf("before the feed told of it: %+v", it)
	}
	f.item.Store(NewItem([]byte("two"), first-1))
	if it := c.Newest("x"); it == nil || it.Revision != first {
		t.Errorf("when the feed told of a newer one: %+v", it)
	}
	if c.Newest("nothing") != nil {
		t.Error("there is something that is not there")
	}
}
