package cache

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"skiff/internal/store"
	"skiff/test/seed"
)

// waitNotified waits until watchers have been notified of all changes, which happens after reads are fresh.
func waitNotified(r *fixture, c *Cache) {
	r.t.Helper()
	r.fresh()
	notified := func() bool {
		c.mu.RLock()
		defer c.mu.RUnlock()
		return len(c.topics.pending) == 0 && c.allWatchers.flushedTo == c.ring.next
	}
	for !notified() {
		time.Sleep(10 * time.Microsecond)
	}
}

// follow returns a cursor of the changes from now on of objects with a first letter.
func follow(c *Cache, letter string, batched bool) *Cursor {
	_, cur := c.SnapshotAndCursor()
	cur.Follow(&Topic{Value: letter}, batched)
	return cur
}

// woken reports whether do wakes a cursor that had read all changes.
func woken(t *testing.T, cur *Cursor, do func()) bool {
	t.Helper()
	changes, wait, err := cur.take(nil)
	if err != nil || len(changes) > 0 {
		t.Fatalf("%d changes, %v", len(changes), err)
	}
	do()
	select {
	case <-wait:
		return true
	default:
		return false
	}
}

// A watcher of a topic gets the changes of objects that begin to match it, match it and cease to match it, and is not woken for others.
func TestTopic(t *testing.T) {
	for _, batched := range []bool{false, true} {
		t.Run(fmt.Sprint("batched ", batched), func(t *testing.T) {
			r := newFixture(t)
			c := r.Cache("a")
			cur := follow(c, "x", batched)
			defer cur.Leave()
			if woken(t, cur, func() {
				r.put("/registry/a/1", "y")
				r.put("/registry/a/1", "z")
				r.delete("/registry/a/1")
				waitNotified(r, c)
			}) {
				t.Error("woken for what it does not follow")
			}
			if got, want := cur.Seen(), r.Revision(); got != want {
				t.Errorf("seen %d, want %d", got, want)
			}
			var want []string
			if !woken(t, cur, func() {
				r.put("/registry/a/1", "y")
				want = append(want, fmt.Sprintf("MODIFIED 1=x@%d (y)", r.put("/registry/a/1", "x")))
				want = append(want, fmt.Sprintf("MODIFIED 1=xx@%d (x)", r.put("/registry/a/1", "xx")))
				r.put("/registry/a/2", "z")
				want = append(want, fmt.Sprintf("MODIFIED 1=y@%d (xx)", r.put("/registry/a/1", "y")))
				r.put("/registry/a/1", "yy")
				want = append(want, fmt.Sprintf("ADDED 3=x@%d (-)", r.put("/registry/a/3", "x")))
				want = append(want, fmt.Sprintf("DELETED 3=x@%d (x)", r.delete("/registry/a/3")))
				waitNotified(r, c)
			}) {
				t.Error("not woken for what it follows")
			}
			expect(t, next(t, cur, len(want)), want...)
			if got, want := cur.Seen(), r.Revision(); got != want {
				t.Errorf("seen %d, want %d", got, want)
			}
		})
	}
}

// Changes between the snapshot and the call of Follow are not lost, also if the topic has other watchers.
func TestTopicJoinedLate(t *testing.T) {
	for _, batched := range []bool{false, true} {
		r := newFixture(t)
		c := r.Cache("a")
		if batched {
			other := follow(c, "x", true)
			defer other.Leave()
		}
		_, cur := c.SnapshotAndCursor()
		one := r.put("/registry/a/1", "x")
		two := r.put("/registry/a/2", "y")
		r.fresh()
		cur.Follow(&Topic{Value: "x"}, batched)
		r.put("/registry/a/2", "yy")
		three := r.put("/registry/a/3", "x")
		expect(t, next(t, cur, 3), fmt.Sprintf("ADDED 1=x@%d (-)", one), fmt.Sprintf("ADDED 2=y@%d (-)", two), fmt.Sprintf("ADDED 3=x@%d (-)", three))
		cur.Leave()
	}
}

// A cursor of a topic without changes never becomes too old, however many changes others have; one whose changes are dropped before they are read does.
func TestTopicFallsBehind(t *testing.T) {
	r := newFixture(t)
	c := r.Cache("a")
	idle, slow := follow(c, "x", false), follow(c, "y", false)
	for i := range ringMax + ringMin {
		r.put("/registry/a/1", fmt.Sprint("y", i))
	}
	r.fresh()
	if changes, err := slow.Next(t.Context(), nil); !errors.Is(err, ErrTooOld) {
		t.Errorf("read %d changes, %v", len(changes), err)
	}
	revision := r.put("/registry/a/2", "x")
	expect(t, next(t, idle, 1), fmt.Sprintf("ADDED 2=x@%d (-)", revision))
	idle.Leave()
	c.mu.RLock()
	defer c.mu.RUnlock()
	if held := cap(c.topics.followed[0]["y"].changes); held > 4*ringMax {
		t.Errorf("room for %d changes in a topic of which %d are held", held, ringMax)
	}
	if all := c.topics.followed; len(all[0]) != 1 {
		t.Errorf("a topic that nobody follows is kept: %v", all)
	}
}

// An idle topic keeps no sequences but those of changes that the ring holds.
func TestTopicForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t)
		c := r.Cache("a")
		cur := follow(c, "x", false)
		defer cur.Leave()
		for range 1000 {
			r.put("/registry/a/1", "x")
		}
		r.fresh()
		next(t, cur, 1000)
		time.Sleep(3*trimEvery + time.Second)
		c.mu.RLock()
		defer c.mu.RUnlock()
		if got := len(c.topics.followed[0]["x"].changes); got != ringMin {
			t.Errorf("%d changes are kept", got)
		}
	})
}

// When history is lost the cursors of topics get ErrTooOld.
func TestTopicEnds(t *testing.T) {
	r := newFixture(t)
	c := r.Cache("a")
	cur := follow(c, "x", true)
	defer cur.Leave()
	if !woken(t, cur, func() { c.replace(nil, nil, r.Revision()) }) {
		t.Error("nobody was woken")
	}
	if _, err := cur.Next(t.Context(), nil); !errors.Is(err, ErrTooOld) {
		t.Errorf("%v", err)
	}
}

// Changes that come in quick succession are batched in topics with many watchers, and only there.
func TestTopicBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t)
		c := r.Cache("a")
		var crowd []*Cursor
		for range 500 {
			crowd = append(crowd, follow(c, "x", true))
		}
		alone := follow(c, "y", true)
		defer alone.Leave()
		time.Sleep(time.Second)
		lag := func(cur *Cursor, letter string) (late time.Duration) {
			for range 2 { // the second comes in quick succession
				r.put("/registry/a/"+letter, letter)
				start := time.Now()
				next(t, cur, 1)
				late = time.Since(start)
			}
			return late
		}
		if late := lag(crowd[0], "x"); late != 2*maxBatchGap {
			t.Errorf("%v late where 500 follow", late)
		}
		if late := lag(alone, "y"); late != 0 {
			t.Errorf("%v late where one does", late)
		}
		for _, cur := range crowd {
			cur.Leave()
		}
	})
}

// TestTopicLikeAll makes random changes: a cursor of a topic, joining and reading at any time, returns what a cursor of all changes would after selection, or
// ErrTooOld.
func TestTopicLikeAll(t *testing.T) {
	seed := seed.New(t)
	t.Run("random", func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 0))
		r := newFixture(t)
		c := r.Cache("a")
		letters := []string{"x", "y", "z"}
		about := func(ch *Change, letter string) bool {
			return ch.Item.Fields[0] == letter || ch.Prev != nil && ch.Prev.Fields[0] == letter
		}
		type reader struct {
			letter        string
			all, filtered *Cursor
		}
		var readers []*reader // too few for changes to be batched
		read := func(r *reader) bool {
			var want, got []string
			for {
				changes, _, err := r.all.take(nil)
				if err != nil {
					return false // nothing to compare with; the other may know more
				}
				if len(changes) == 0 {
					break
				}
				for _, ch := range changes {
					if about(ch, r.letter) {
						want = append(want, show(ch))
					}
				}
			}
			for {
				changes, _, err := r.filtered.take(nil)
				if err != nil {
					t.Fatalf("too late for %v: %v", want, err)
				}
				if len(changes) == 0 {
					break
				}
				for _, ch := range changes {
					if about(ch, r.letter) {
						got = append(got, show(ch))
					}
				}
			}
			expect(t, got, want...)
			if s, p := r.filtered.Seen(), r.all.Seen(); s != p {
				t.Errorf("seen %d, not %d", s, p)
			}
			return true
		}
		for range 3000 {
			switch n := random.IntN(100); {
			case n < 70:
				key := fmt.Sprint("/registry/a/", random.IntN(8))
				if random.IntN(4) == 0 {
					_, _ = r.store.Delete(t.Context(), key, store.AnyRevision)
				} else {
					r.put(key, letters[random.IntN(3)]+fmt.Sprint(random.IntN(100)))
				}
				waitNotified(r, c)
			case n < 80 && len(readers) < 12:
				letter := letters[random.IntN(3)]
				_, all := c.SnapshotAndCursor()
				_, filtered := c.SnapshotAndCursor()
				if random.IntN(2) == 0 {
					r.put("/registry/a/between", letters[random.IntN(3)])
					waitNotified(r, c)
				}
				filtered.Follow(&Topic{Value: letter}, random.IntN(2) == 0)
				readers = append(readers, &reader{letter, all, filtered})
			case n < 97 && len(readers) > 0:
				i := random.IntN(len(readers))
				if !read(readers[i]) || random.IntN(8) == 0 {
					readers[i].filtered.Leave()
					readers = append(readers[:i], readers[i+1:]...)
				}
			case n == 97:
				c.trim()
			case n == 98 && random.IntN(10) == 0:
				var items []*Item
				c.Snapshot().Ascend("", "", func(it *Item) bool { items = append(items, it); return true })
				c.replace(items, nil, c.revision())
			}
		}
		for _, each := range readers {
			read(each)
			each.filtered.Leave()
		}
		if len(c.topics.followed) > 0 || c.allWatchers.batchedWatchers != 0 {
			t.Errorf("topics or watchers are left: %v, %d", c.topics.followed, c.allWatchers.batchedWatchers)
		}
	})
}
