package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"skiff/internal/store"
	"skiff/test/seed"
)

// TestModel makes random writes, broken watches and compactions and compares the cache with what was written: its state, its
// snapshots, and the changes that each of several readers got.
func TestModel(t *testing.T) {
	rounds := 4
	if seed.Given() != 0 {
		rounds = 1
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			runModel(t, rand.New(rand.NewPCG(seed.New(t), 0)))
		})
	}
}

// writeHistory records what was written, by revision.
type writeHistory struct {
	mu       sync.Mutex
	state    map[string]version
	history  []string // one line per change, at the index of its revision
	revision int64
}

type version struct {
	value    string
	revision int64
}

func (w *writeHistory) record(kind ChangeType, key, value string, revision int64) {
	before := "-"
	if old, ok := w.state[key]; ok {
		before = old.value
	}
	if kind == Deleted {
		value = before
		delete(w.state, key)
	} else {
		w.state[key] = version{value, revision}
	}
	for int64(len(w.history)) <= revision {
		w.history = append(w.history, "")
	}
	w.history[revision] = fmt.Sprintf("%s %s=%s@%d (%s)", kind, key, value, revision, before)
	w.revision = revision
}

func (w *writeHistory) show() string {
	var lines []string
	for key, v := range w.state {
		lines = append(lines, fmt.Sprintf("%s=%s@%d", key, v.value, v.revision))
	}
	sort.Strings(lines)
	return strings.Join(lines, " ")
}

func showSnapshot(s Snapshot) string {
	var lines []string
	s.Ascend("", "", func(it *Item) bool {
		lines = append(lines, fmt.Sprintf("%s=%s@%d", it.Key, it.Message(), it.Revision))
		return true
	})
	return strings.Join(lines, " ")
}

func runModel(t *testing.T, random *rand.Rand) {
	r := newFixture(t)
	c := r.Cache("a")
	w := &writeHistory{state: map[string]version{}, revision: 1}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for i := range 4 {
		readers.Go(func() { read(t, c, w, stop, i == 0) })
	}
	for step := range 3000 {
		key := fmt.Sprintf("k%02d", random.IntN(30))
		switch n := random.IntN(1000); {
		case n < 600:
			w.put(r, key, fmt.Sprintf("v%d", step))
		case n < 900:
			w.remove(r, key)
		case n < 950:
			r.put("/registry/b/specs/x", fmt.Sprint(step))
		case n < 955:
			r.store.breakWatch(errors.New("broken on purpose"))
		case n < 960:
			if err := r.store.Compact(context.Background(), w.revision); err != nil { // perhaps beyond what the cache has seen
				t.Fatal(err)
			}
		default:
			r.fresh()
			snapshot := c.Snapshot()
			if got, want := showSnapshot(snapshot), w.show(); got != want {
				t.Fatalf("step %d, at %d\n got %s\nwant %s", step, snapshot.Revision, got, want)
			}
			if stats := c.Stats(); stats.Objects != len(w.state) || stats.Ring > ringMax {
				t.Fatalf("%+v, %d objects", stats, len(w.state))
			}
		}
	}
	close(stop)
	w.put(r, "last", "last") // wakes the readers
	readers.Wait()
}

func (w *writeHistory) put(r *fixture, key, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kind := Modified
	if _, ok := w.state[key]; !ok {
		kind = Added
	}
	w.record(kind, key, value, r.put("/registry/a/"+key, value))
}

func (w *writeHistory) remove(r *fixture, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	revision, err := r.store.Delete(context.Background(), "/registry/a/"+key, store.AnyRevision)
	if errors.Is(err, store.ErrNotFound) {
		return
	}
	if err != nil {
		r.t.Fatal(err)
	}
	w.record(Deleted, key, "", revision)
}

// read reads the changes and checks that it gets each of them, once and in order. After ErrTooOld it restarts from a new
// snapshot.
func read(t *testing.T, c *Cache, w *writeHistory, stop chan struct{}, slow bool) {
	snapshot, cur := c.SnapshotAndCursor()
	last := snapshot.Revision
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		select {
		case <-stop:
			return
		default:
		}
		changes, err := cur.Next(ctx, nil)
		if errors.Is(err, ErrTooOld) {
			snapshot, cur = c.SnapshotAndCursor()
			last = snapshot.Revision
			continue
		}
		if err != nil {
			t.Errorf("at %d: %v", last, err)
			return
		}
		for _, change := range changes {
			if !w.follows(t, last, change) {
				return
			}
			last = change.Item.Revision
		}
		if slow {
			time.Sleep(time.Millisecond)
		}
	}
}

// follows checks that a change is what was written next after a revision.
func (w *writeHistory) follows(t *testing.T, last int64, change *Change) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	want := ""
	for revision := last + 1; revision < int64(len(w.history)) && want == ""; revision++ {
		want = w.history[revision]
	}
	if got := show(change); got != want {
		t.Errorf("after %d came %q, want %q", last, got, want)
		return false
	}
	return true
}
