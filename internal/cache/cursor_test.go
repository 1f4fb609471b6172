package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

func TestCursorBeginsAfterItsRevision(t *testing.T) {
	r := newFixture(t)
	c := r.Cache("a")
	one := r.put("/registry/a/x", "1")
	two := r.put("/registry/a/x", "2")
	r.put("/registry/b/specs/x", "other")
	three := r.delete("/registry/a/x")
	r.fresh()
	for after, want := range map[int64][]string{
		one:     {fmt.Sprintf("MODIFIED x=2@%d (1)", two), fmt.Sprintf("DELETED x=2@%d (2)", three)},
		two:     {fmt.Sprintf("DELETED x=2@%d (2)", three)},
		two + 1: {fmt.Sprintf("DELETED x=2@%d (2)", three)},
	} {
		cur, err := c.After(after)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, next(t, cur, len(want)), want...)
		if got := cur.Seen(); got != three {
			t.Errorf("after %d: seen %d, want %d", after, got, three)
		}
	}
}

// One revision of the store may change many objects, as when keys expire together: the cursor returns all of them, whenever it reads.
func TestCursorManyInOneRevision(t *testing.T) {
	r := newFixture(t)
	c := r.Cache("a")
	keys := []string{"x", "y", "z"}
	for _, key := range keys {
		r.put("/registry/a/"+key, "1")
	}
	r.fresh()
	_, at := c.SnapshotAndCursor()
	revision := r.Revision() + 1
	var got []string
	for i, key := range keys {
		c.apply(key, nil, revision)
		if i == 1 {
			c.notify()
			got = append(got, next(t, at, 2)...)
		}
	}
	c.notify()
	expect(t, append(got, next(t, at, 1)...), fmt.Sprintf("DELETED x=1@%d (1)", revision), fmt.Sprintf("DELETED y=1@%d (1)", revision), fmt.Sprintf("DELETED z=1@%d (1)", revision))
}

// Seen advances over revisions that changed nothing of this resource, but never over a change that was not returned.
func TestCursorSeen(t *testing.T) {
	r := newFixture(t)
	_, cur := r.Cache("a").SnapshotAndCursor()
	elsewhere := r.put("/registry/b/specs/x", "1")
	r.fresh()
	if got := cur.Seen(); got != elsewhere {
		t.Errorf("seen %d, want %d", got, elsewhere)
	}
	r.put("/registry/a/x", "1")
	r.put("/registry/b/specs/x", "2")
	r.fresh()
	if got := cur.Seen(); got != elsewhere {
		t.Errorf("seen %d before the change was returned, want %d", got, elsewhere)
	}
	next(t, cur, 1)
	if got, want := cur.Seen(), elsewhere+2; got != want {
		t.Errorf("seen %d, want %d", got, want)
	}
}

func TestCursorAheadOfTheCache(t *testing.T) {
	r := newFixture(t)
	ahead := r.Revision() + 2
	cur, err := r.Cache("a").After(ahead)
	if err != nil {
		t.Fatal(err)
	}
	r.put("/registry/a/x", "1")
	r.put("/registry/a/x", "2")
	three := r.put("/registry/a/x", "3")
	expect(t, next(t, cur, 1), fmt.Sprintf("MODIFIED x=3@%d (2)", three))
}

func TestSlowReaderGetsTooOld(t *testing.T) {
	r := newFixture(t)
	c := r.Cache("a")
	_, slow := c.SnapshotAndCursor()
	_, quick := c.SnapshotAndCursor()
	for i := range ringMax {
		r.put("/registry/a/x", fmt.Sprint(i))
	}
	next(t, quick, ringMax)
	r.put("/registry/a/x", "one too many")
	r.fresh()
	if changes, err := slow.Next(t.Context(), nil); !errors.Is(err, ErrTooOld) {
		t.Errorf("read %d changes, %v", len(changes), err)
	}
	if got := slow.Seen(); got != 1 {
		t.Errorf("a reader that saw nothing has seen %d", got)
	}
	next(t, quick, 1)
}

func TestNextWaits(t *testing.T) {
	r := newFixture(t)
	_, cur := r.Cache("a").SnapshotAndCursor()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if changes, err := cur.Next(ctx, nil); len(changes) != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v %v", changes, err)
	}
	got := make(chan []string)
	go func() { got <- next(t, cur, 1) }()
	revision := r.put("/registry/a/x", "1")
	expect(t, <-got, fmt.Sprintf("ADDED x=1@%d (-)", revision))
}

func TestNextAppendsUpToCapacity(t *testing.T) {
	r := newFixture(t)
	_, cur := r.Cache("a").SnapshotAndCursor()
	for i := range 300 {
		r.put("/registry/a/x", fmt.Sprint(i))
	}
	r.fresh()
	first, err := cur.Next(t.Context(), make([]*Change, 0, 256))
	if err != nil || len(first) != 256 {
		t.Errorf("%d changes, %v", len(first), err)
	}
	rest, err := cur.Next(t.Context(), first[:0])
	if err != nil || len(rest) != 44 || string(rest[43].Item.Message()) != "299" {
		t.Errorf("%d changes, %v", len(rest), err)
	}
}

// A snapshot does not change while others write.
func TestSnapshotStays(t *testing.T) {
	r := newFixture(t)
	for i := range 500 {
		r.put(fmt.Sprintf("/registry/a/%03d", i), "old")
	}
	r.fresh()
	c := r.Cache("a")
	snapshot, cur := c.SnapshotAndCursor()
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 500 {
			if i%2 == 0 {
				r.delete(fmt.Sprintf("/registry/a/%03d", i))
			} else {
				r.put(fmt.Sprintf("/registry/a/%03d", i), "new")
			}
		}
	})
	for range 20 {
		seen, key := 0, ""
		snapshot.Ascend("", "", func(it *Item) bool {
			if it.Key <= key || string(it.Message()) != "old" || it.Revision > snapshot.Revision {
				t.Errorf("%s after %s, %s at %d", it.Key, key, it.Message(), it.Revision)
			}
			seen, key = seen+1, it.Key
			return true
		})
		if seen != 500 || snapshot.Len() != 500 {
			t.Fatalf("%d objects", seen)
		}
	}
	wg.Wait()
	next(t, cur, 500) // exactly what came after the snapshot
	if got := c.Snapshot().Len(); got != 250 {
		t.Errorf("%d objects in the end", got)
	}
}

func TestAscend(t *testing.T) {
	r := newFixture(t)
	for _, key := range []string{"a/1", "a/2", "a/3", "aa/1", "b/1"} {
		r.put("/registry/a/"+key, "x")
	}
	r.fresh()
	snapshot := r.Cache("a").Snapshot()
	for _, c := range []struct {
		prefix, from string
		limit        int
		want         string
	}{
		{"", "", 9, "[a/1 a/2 a/3 aa/1 b/1]"}, {"a/", "", 9, "[a/1 a/2 a/3]"}, {"a/", "a/2", 9, "[a/2 a/3]"}, {"a/", "a/2\x00", 9, "[a/3]"},
		{"a/", "", 1, "[a/1]"}, {"c/", "", 9, "[]"}, {"a/", "b", 9, "[]"}, {"", "aa", 9, "[aa/1 b/1]"},
	} {
		got := []string{}
		snapshot.Ascend(c.prefix, c.from, func(it *Item) bool {
			got = append(got, it.Key)
			return len(got) < c.limit
		})
		if fmt.Sprint(got) != c.want {
			t.Errorf("%q from %q: %v, want %s", c.prefix, c.from, got, c.want)
		}
	}
}
