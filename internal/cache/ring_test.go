package cache

import (
	"fmt"
	"testing"
)

// change makes a change at a revision, of an object of about the given size.
func change(revision int64, size int) *Change {
	return &Change{Type: Modified, Item: NewItem(make([]byte, size), revision)}
}

// held lists the revisions a ring holds.
func (r *ring) held() []int64 {
	var out []int64
	for s := r.first; s < r.next; s++ {
		out = append(out, r.at(s).Item.Revision)
	}
	return out
}

func fill(r *ring, from, to int64) {
	for revision := from; revision <= to; revision++ {
		r.add(change(revision, 10))
	}
}

func TestRingGrowsThenDropsTheOldest(t *testing.T) {
	r := ring{bounds: cachedRing}
	fill(&r, 1, 1)
	if len(r.changes) != ringMin {
		t.Errorf("a ring of one change has room for %d", len(r.changes))
	}
	fill(&r, 2, ringMax)
	if got := r.held(); len(got) != ringMax || got[0] != 1 || r.floor != 0 {
		t.Errorf("holds %d changes from %d on, floor %d", len(got), got[0], r.floor)
	}
	fill(&r, ringMax+1, ringMax+100)
	got := r.held()
	if len(got) != ringMax || got[0] != 101 || got[ringMax-1] != ringMax+100 || r.floor != 100 || len(r.changes) != ringMax {
		t.Errorf("holds %d changes from %d to %d, floor %d, room for %d", len(got), got[0], got[len(got)-1], r.floor, len(r.changes))
	}
	for i, revision := range got {
		if revision != int64(101+i) {
			t.Fatalf("change %d has revision %d", i, revision)
		}
	}
}

func TestRingDropsLargeObjectsSooner(t *testing.T) {
	r := ring{bounds: cachedRing}
	const size = ringBytes / 100
	for revision := range int64(300) {
		r.add(change(revision+1, size))
	}
	if got := len(r.held()); got > 100 || got < ringMin || r.bytes > ringBytes {
		t.Errorf("holds %d changes, %d bytes", got, r.bytes)
	}
	for revision := range int64(300) { // larger still: the latest are kept whatever their size
		r.add(change(revision+301, ringBytes/10))
	}
	if got := len(r.held()); got != ringMin {
		t.Errorf("holds %d changes", got)
	}
	r.trim(r.next)
	if r.bytes != 0 || len(r.held()) != 0 {
		t.Errorf("an empty ring counts %d bytes", r.bytes)
	}
}

// TestRingCools: frames of old changes are encoded again for each call, and not kept.
func TestRingCools(t *testing.T) {
	r := ring{bounds: cachedRing}
	first := change(1, 1)
	encoded := 0
	frame := func() { first.Frame(FrameJSON, func(*Change) []byte { encoded++; return []byte("event") }) }
	r.add(first)
	for revision := range int64(ringWarm - 1) {
		frame()
		r.add(change(revision+2, 1))
	}
	if frame(); encoded != 1 {
		t.Errorf("encoded %d times while it was warm", encoded)
	}
	r.add(change(ringWarm+1, 1))
	frame()
	if frame(); encoded != 3 {
		t.Errorf("encoded %d times with two when it was cold", encoded)
	}
}

func TestRingAfter(t *testing.T) {
	r := ring{bounds: cachedRing}
	r.reset(10)
	for _, revision := range []int64{12, 15, 20} {
		r.add(change(revision, 1))
	}
	for _, c := range []struct {
		after int64
		first int64 // revision of the change found; 0 if it is the next to come
		ok    bool
	}{
		{9, 0, false}, {10, 12, true}, {11, 12, true}, {12, 15, true}, {14, 15, true}, {15, 20, true}, {19, 20, true}, {20, 0, true}, {100, 0, true},
	} {
		seq, ok := r.after(c.after)
		if ok != c.ok {
			t.Errorf("after %d: %v", c.after, ok)
		}
		if !ok {
			continue
		}
		var got int64
		if seq < r.next {
			got = r.at(seq).Item.Revision
		}
		if got != c.first {
			t.Errorf("after %d comes %d, want %d", c.after, got, c.first)
		}
	}
	var empty ring
	if seq, ok := empty.after(5); !ok || seq != 0 {
		t.Errorf("an empty ring: %d %v", seq, ok)
	}
}

func TestRingTrimReleasesCapacity(t *testing.T) {
	r := ring{bounds: cachedRing}
	fill(&r, 1, 5000)
	r.trim(4990)
	if got := r.held(); len(got) != 10 || got[0] != 4991 || r.floor != 4990 || len(r.changes) != ringMin {
		t.Errorf("holds %v, floor %d, room for %d", got, r.floor, len(r.changes))
	}
	fill(&r, 5001, 5100) // and grows again
	if got := r.held(); len(got) != 110 || got[109] != 5100 {
		t.Errorf("holds %d", len(got))
	}
	r.trim(3) // dropped before
	if len(r.held()) != 110 {
		t.Errorf("holds %d", len(r.held()))
	}
}

func TestRingResetKeepsCounting(t *testing.T) {
	r := ring{bounds: cachedRing}
	fill(&r, 1, 100)
	r.reset(200)
	if r.first != 100 || r.next != 100 || r.floor != 200 || r.bytes != 0 {
		t.Errorf("after a reset: %d..%d, floor %d, %d bytes", r.first, r.next, r.floor, r.bytes)
	}
	fill(&r, 201, 203)
	if got := fmt.Sprint(r.held()); got != "[201 202 203]" {
		t.Errorf("holds %s", got)
	}
}

func TestFrameIsMadeOnce(t *testing.T) {
	c := change(1, 1)
	made := 0
	for range 3 {
		if got := c.Frame(FrameJSON, func(*Change) []byte { made++; return []byte("x") }); string(got) != "x" {
			t.Errorf("frame %q", got)
		}
	}
	c.Frame(FrameProtobuf, func(*Change) []byte { made += 10; return nil })
	if made != 11 {
		t.Errorf("made %d", made)
	}
}

// A failure to encode a frame for one watcher is not kept for the others, which would take it for no change.
func TestFrameThatFails(t *testing.T) {
	change := &Change{Type: Added}
	made := 0
	frame := func(b []byte) []byte {
		return change.Frame(FrameJSON, func(*Change) []byte {
			made++
			return b
		})
	}
	if b := frame(nil); b != nil {
		t.Errorf("a frame of what cannot be encoded: %q", b)
	}
	for range 2 {
		if b := frame([]byte("event")); string(b) != "event" {
			t.Errorf("got %q after a failure", b)
		}
	}
	if made != 2 {
		t.Errorf("encoded %d times, want once in vain and once for all", made)
	}
}
