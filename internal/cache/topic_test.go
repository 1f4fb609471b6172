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

// announced waits until who waits for changes has been woken for all of them, which is after reads are fresh.
func announced(r *rig, c *Cache) {
	r.t.Helper()
	r.fresh()
	known := func() bool {
		c.mu.RLock()
		defer c.mu.RUnlock()
		return len(c.topics.due) == 0 && c.everyone.told == c.ring.next
	}
	for !known() {
		time.Sleep(10 * time.Microsecond)
	}
}

// follow is a cursor of what is there from now on with a first letter.
func follow(c *Cache, letter string, patient bool) *Cursor {
	_, cur := c.SnapshotAndCursor()
	cur.Follow(&Topic{Value: letter}, patient)
	return cur
}

// woken says whether a cursor that had taken all there was would look again.
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

// Who follows a topic is told of what comes to it, changes in it and leaves it, and is not woken for anything else.
func TestTopic(t *testing.T) {
	for _, patient := range []bool{false, true} {
		t.Run(fmt.Sprint("patient ", patient), func(t *testing.T) {
			r := newRig(t)
			c := r.Cache("a")
			cur := follow(c, "x", patient)
			defer cur.Leave()
			if woken(t, cur, func() {
				r.put("/registry/a/1", "y")
				r.put("/registry/a/1", "z")
				r.delete("/registry/a/1")
				announced(r, c)
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
				announced(r, c)
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

// What happened between the snapshot and the moment the cursor was told what to follow is not lost, whoever follows that already.
func TestTopicJoinedLate(t *testing.T) {
	for _, patient := range []bool{false, true} {
		r := newRig(t)
		c := r.Cache("a")
		if patient {
			other := follow(c, "x", true)
			defer other.Leave()
		}
		_, cur := c.SnapshotAndCursor()
		one := r.put("/registry/a/1", "x")
		two := r.put("/registry/a/2", "y")
		r.fresh()
		cur.Follow(&Topic{Value: "x"}, patient)
		r.put("/registry/a/2", "yy")
		three := r.put("/registry/a/3", "x")
		expect(t, next(t, cur, 3), fmt.Sprintf("ADDED 1=x@%d (-)", one), fmt.Sprintf("ADDED 2=y@%d (-)", two), fmt.Sprintf("ADDED 3=x@%d (-)", three))
		cur.Leave()
	}
}

// A topic in which nothing happens does not age, however much happens elsewhere; one whose changes are forgotten before they are read does.
func TestTopicFallsBehind(t *testing.T) {
	r := newRig(t)
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

// Of an idle topic nothing is kept but what the ring has.
func TestTopicForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
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

// Where history is lost those of a topic are told so.
func TestTopicEnds(t *testing.T) {
	r := newRig(t)
	c := r.Cache("a")
	cur := follow(c, "x", true)
	defer cur.Leave()
	if !woken(t, cur, func() { c.replace(nil, r.Revision()) }) {
		t.Error("nobody was woken")
	}
	if _, err := cur.Next(t.Context(), nil); !errors.Is(err, ErrTooOld) {
		t.Errorf("%v", err)
	}
}

// Changes that come in quick succession gather where many follow them, and only there.
func TestTopicGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
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
		if late := lag(crowd[0], "x"); late != 2*slowest {
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

// TestTopicLikeAll plays random changes: whoever follows a topic, joining and reading whenever, is told what somebody who reads everything would select, or that it
// is too late.
func TestTopicLikeAll(t *testing.T) {
	seed := seed.New(t)
	t.Run("random", func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 0))
		r := newRig(t)
		c := r.Cache("a")
		letters := []string{"x", "y", "z"}
		about := func(ch *Change, letter string) bool {
			return ch.Item.Fields[0] == letter || ch.Prev != nil && ch.Prev.Fields[0] == letter
		}
		type reader struct {
			letter      string
			plain, some *Cursor
		}
		var readers []*reader // too few for changes to gather
		read := func(r *reader) bool {
			var want, got []string
			for {
				changes, _, err := r.plain.take(nil)
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
				changes, _, err := r.some.take(nil)
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
			if s, p := r.some.Seen(), r.plain.Seen(); s != p {
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
				announced(r, c)
			case n < 80 && len(readers) < 12:
				letter := letters[random.IntN(3)]
				_, plain := c.SnapshotAndCursor()
				_, some := c.SnapshotAndCursor()
				if random.IntN(2) == 0 {
					r.put("/registry/a/between", letters[random.IntN(3)])
					announced(r, c)
				}
				some.Follow(&Topic{Value: letter}, random.IntN(2) == 0)
				readers = append(readers, &reader{letter, plain, some})
			case n < 97 && len(readers) > 0:
				i := random.IntN(len(readers))
				if !read(readers[i]) || random.IntN(8) == 0 {
					readers[i].some.Leave()
					readers = append(readers[:i], readers[i+1:]...)
				}
			case n == 97:
				c.trim()
			case n == 98 && random.IntN(10) == 0:
				var items []*Item
				c.Snapshot().Ascend("", "", func(it *Item) bool { items = append(items, it); return true })
				c.replace(items, c.revision())
			}
		}
		for _, each := range readers {
			read(each)
			each.some.Leave()
		}
		if len(c.topics.followed) > 0 || c.everyone.patient != 0 {
			t.Errorf("somebody follows yet: %v, %d", c.topics.followed, c.everyone.patient)
		}
	})
}
