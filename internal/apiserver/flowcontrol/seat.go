package flowcontrol

import (
	"context"
	"time"
)

// Work is an estimate of what a request costs.
type Work struct {
	Seats int // while it executes
	// FinalSeats are kept for AdditionalLatency after it has ended, for what it causes.
	FinalSeats        int
	AdditionalLatency time.Duration
}

// Seat is a request's permission to execute: one seat, or several. The zero value with a Request is no permission. A Seat must not be copied while it is in use.
type Seat struct {
	Request Request

	controller    *Controller
	schema        *schema // nil unless the request has arrived
	key           flowKey
	flow          *flow // nil unless the request has a seat or is parked
	work          Work
	width         int // seats
	waited        time.Duration
	retryAfter    int
	parked        bool
	stalled       bool // the request is rejected, and its client is to be told later
	administrator bool // the request executes although it found no seat: see Options.Unfair
	kind          int8 // 1 for a mutating request, 0 for a read-only one

	next, previous *Seat // in level.seats
}

// setWork sets how many seats the request takes, which are bounded by its level.
func (s *Seat) setWork(w Work) {
	most := s.schema.level.maxSeats(s.Request.Mutating)
	w.Seats = min(max(w.Seats, 1), most)
	if w.FinalSeats > most { // as much work with fewer seats takes longer
		w.AdditionalLatency = w.AdditionalLatency * time.Duration(w.FinalSeats) / time.Duration(most)
		w.FinalSeats = most
	}
	s.work, s.width = w, max(w.Seats, w.FinalSeats)
}

// UIDs returns the UIDs of the objects that the request was classified by, as values of headers, nil if it was not. They must not be changed.
func (s *Seat) UIDs() (schema, level []string) {
	if s.schema == nil {
		return nil, nil
	}
	return s.schema.schemaUID, s.schema.levelUID
}

// Classified returns the names of the request's schema and level, and its flow; empty if it has not arrived.
func (s *Seat) Classified() (schema, level, flow string) {
	if s.schema == nil {
		return "", "", ""
	}
	return s.schema.Name, s.schema.level.Name, s.key.distinguisher
}

// RetryAfter returns how many seconds a client whose request was rejected should wait before it tries again.
func (s *Seat) RetryAfter() int { return max(s.retryAfter, 1) }

// Stall holds back the rejection of a request, if its level rejects many, until ctx ends at the latest. It must be called for every rejected request.
func (s *Seat) Stall(ctx context.Context) {
	if !s.stalled {
		return
	}
	timer := time.NewTimer(stallTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	s.stalled = false
	s.controller.mu.Lock()
	defer s.controller.mu.Unlock()
	s.controller.stalled--
}

// Park gives the seat back while the request waits for its client. It does nothing if the request has no seat or if too many requests are parked.
func (s *Seat) Park() {
	c := s.controller
	if c == nil || s.isExempt() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.flow == nil || s.parked {
		return
	}
	granted, ok := c.core.park(s.flow, s.width)
	if ok {
		s.parked = true
		s.unlist()
		c.executing[s.kind]--
		s.schema.counts.executing--
		s.schema.counts.seats -= s.width
	}
	c.wake(granted)
}

// Resume gets a seat again for a parked request. It returns at once if the request has a seat.
func (s *Seat) Resume(ctx context.Context) (waited time.Duration, ok bool) {
	c := s.controller
	if c == nil || s.isExempt() {
		return 0, true
	}
	c.mu.Lock()
	if !s.parked {
		ok = s.flow != nil
		c.mu.Unlock()
		return 0, ok
	}
	return c.enter(ctx, s, true)
}

// Leave ends the request. It may be called more than once.
func (s *Seat) Leave() {
	c := s.controller
	if c == nil {
		return
	}
	s.controller = nil
	if s.isExempt() {
		c.exempt[s.kind].Add(-1)
		s.schema.counts.exempt.Add(-1)
		if c.waiting.Load() {
			c.dispatch()
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f := s.flow
	switch {
	case f == nil:
	case s.parked:
		c.wake(c.core.unpark(f))
	default:
		c.executing[s.kind]--
		s.unlist()
		s.schema.counts.executing--
		if s.work.AdditionalLatency > 0 {
			s.linger(c, f)
		} else {
			s.schema.counts.seats -= s.width
			c.wake(c.core.leave(f, s.width))
		}
	}
	s.flow, s.parked = nil, false
}

// linger keeps the seats of a request that has ended for what it causes.
func (s *Seat) linger(c *Controller, f *flow) {
	c.core.end(f)
	counts, width := s.schema.counts, s.width
	time.AfterFunc(s.work.AdditionalLatency, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		counts.seats -= width
		c.wake(c.core.release(f, width))
	})
}

// Executed counts how long a request has executed: until it was answered, or, if it is a watch, until its initial events were sent.
func (s *Seat) Executed(took time.Duration, watch bool) {
	if s.schema == nil || s.retryAfter > 0 && s.flow == nil {
		return
	}
	s.schema.counts.execution[kindOf(watch)].observe(took.Seconds())
}

func (s *Seat) isExempt() bool { return s.schema.exempt || s.administrator }

// list adds the request to those of its level that execute.
func (s *Seat) list() {
	l := s.schema.level
	if s.next = l.seats; s.next != nil {
		s.next.previous = s
	}
	s.previous, l.seats = nil, s
}

func (s *Seat) unlist() {
	if s.previous != nil {
		s.previous.next = s.next
	} else {
		s.schema.level.seats = s.next
	}
	if s.next != nil {
		s.next.previous = s.previous
	}
	s.next, s.previous = nil, nil
}
