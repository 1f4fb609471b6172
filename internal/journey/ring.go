package journey

import (
	"sync"
	"sync/atomic"
)

// A ring keeps the last records put into it. Writers of different records do not wait for each other; a reader waits for, and
// holds up, one slot at a time.
type ring struct {
	slots []slot
	next  atomic.Uint64 // how many were put
}

type slot struct {
	mu     sync.Mutex
	turn   uint64 // which put, counted from 1, filled it
	record record
}

func newRing(size int) ring { return ring{slots: make([]slot, size)} }

func (r *ring) put(rec *record) {
	turn := r.next.Add(1)
	s := &r.slots[turn%uint64(len(r.slots))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if turn > s.turn { // else a put one round later overtook this one
		s.turn = turn
		s.record = *rec
	}
}

// each calls visit with a copy of every record, oldest first.
func (r *ring) each(visit func(rec *record)) {
	last, size := r.next.Load(), uint64(len(r.slots))
	first := uint64(1)
	if last > size {
		first = last - size + 1
	}
	for turn := first; turn <= last; turn++ {
		s := &r.slots[turn%size]
		s.mu.Lock()
		found, rec := s.turn == turn, s.record
		s.mu.Unlock()
		if found { // else still to be put, or gone meanwhile
			visit(&rec)
		}
	}
}
