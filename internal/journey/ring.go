package journey

import (
	"sync"
	"sync/atomic"
)

// A ring keeps the last records put into it. Writers of different slots do not block each other; a reader locks
// one slot at a time.
type ring struct {
	slots []slot
	next  atomic.Uint64 // number of records put so far
}

type slot struct {
	mu     sync.Mutex
	turn   uint64 // number of the put that filled the slot, counted from 1
	record record
}

func newRing(size int) ring { return ring{slots: make([]slot, size)} }

func (r *ring) put(rec *record) {
	turn := r.next.Add(1)
	s := &r.slots[turn%uint64(len(r.slots))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if turn > s.turn { // otherwise a put one round later overtook this one
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
		if found { // otherwise the put is not done yet, or the record was displaced meanwhile
			visit(&rec)
		}
	}
}
