package flowcontrol

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Options configure a Controller.
type Options struct {
	Seats   int      // of all priority levels that are not exempt
	Levels  []Level  // DefaultLevels if nil
	Schemas []Schema // DefaultSchemas if nil; the first that matches a request applies
	// MaxWait is how long a request waits for a seat at most before it is rejected.
	MaxWait time.Duration
	// MaxParked and MaxFlowParked bound the parked requests, in total and of one flow: 1000 and 100 if zero.
	MaxParked, MaxFlowParked int
}

// Controller grants seats to requests.
type Controller struct {
	maxWait time.Duration
	schemas []schema
	rest    schema          // the schema of requests that no other matches
	exempt  [2]atomic.Int64 // executing exempt requests, by Seat.kind

	mu        sync.Mutex
	core      *core
	executing [2]int    // requests with a seat, by Seat.kind
	rejected  int64     // since the start
	waiters   sync.Pool // of *waiter
}

// schema is a Schema with its level.
type schema struct {
	Schema
	level *level
}

// New returns a Controller. It fails if a schema names a level that does not exist.
func New(o Options) (*Controller, error) {
	if o.Levels == nil {
		o.Levels = DefaultLevels()
	}
	if o.Schemas == nil {
		o.Schemas = DefaultSchemas()
	}
	if o.MaxParked == 0 {
		o.MaxParked = 1000
	}
	if o.MaxFlowParked == 0 {
		o.MaxFlowParked = 100
	}
	c := &Controller{maxWait: o.MaxWait, core: newCore(o.Seats, o.Levels, o.MaxParked, o.MaxFlowParked)}
	c.waiters.New = func() any { return &waiter{ready: make(chan struct{}, 1)} }
	levels := map[string]*level{}
	for _, l := range c.core.levels {
		levels[l.Name] = l
	}
	for _, s := range append(o.Schemas, Schema{Name: catchAll, Level: catchAll, FlowBy: FlowByUser}) {
		l := levels[s.Level]
		if l == nil {
			return nil, fmt.Errorf("flow schema %q names the priority level %q, which does not exist", s.Name, s.Level)
		}
		c.schemas = append(c.schemas, schema{s, l})
	}
	last := len(c.schemas) - 1
	c.schemas, c.rest = c.schemas[:last:last], c.schemas[last]
	return c, nil
}

// classify returns the first schema that matches a request.
func (c *Controller) classify(r *Request) *schema {
	for i := range c.schemas {
		if s := &c.schemas[i]; s.matches(r) {
			return s
		}
	}
	return &c.rest
}

// Seat is a request's permission to execute. The zero value is no permission. A Seat must not be copied while it is in use.
type Seat struct {
	controller *Controller
	level      *level // nil unless the request has arrived
	key        flowKey
	flow       *flow // nil unless the request has a seat or is parked
	parked     bool
	kind       int8 // 1 for a mutating request, 0 for a read-only one
}

func kindOf(mutating bool) int8 {
	if mutating {
		return 1
	}
	return 0
}

// Enter gets a seat for a request and returns how long it waited for it. ok is false if there was none within MaxWait, or before ctx ended: the
// request must then be rejected. Leave gives the seat back.
func (c *Controller) Enter(ctx context.Context, seat *Seat, r *Request) (waited time.Duration, ok bool) {
	s := c.classify(r)
	*seat = Seat{controller: c, level: s.level, kind: kindOf(r.Mutating)}
	if s.level.Exempt {
		c.exempt[seat.kind].Add(1)
		return 0, true
	}
	seat.key = s.flow(r)
	return c.enter(ctx, seat)
}

func (c *Controller) enter(ctx context.Context, seat *Seat) (waited time.Duration, ok bool) {
	c.mu.Lock()
	f, w, decision := c.core.arrive(seat.level, seat.key, c.newWaiter)
	switch decision {
	case execute:
		seat.flow = f
		c.executing[seat.kind]++
		c.mu.Unlock()
		return 0, true
	case reject:
		c.rejected++
		c.mu.Unlock()
		return 0, false
	}
	c.mu.Unlock()
	began := time.Now()
	timer := time.NewTimer(c.maxWait)
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-timer.C:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.granted { // possibly at the same moment as the timeout
		seat.flow = f
		c.executing[seat.kind]++
	} else {
		c.rejected++
		c.wake(c.core.withdraw(w))
	}
	ok = w.granted
	c.freeWaiter(w)
	return time.Since(began), ok
}

func (c *Controller) newWaiter() *waiter { return c.waiters.Get().(*waiter) }

func (c *Controller) freeWaiter(w *waiter) {
	select {
	case <-w.ready:
	default:
	}
	w.flow, w.granted = nil, false
	c.waiters.Put(w)
}

func (c *Controller) wake(granted []*waiter) {
	for _, w := range granted {
		w.ready <- struct{}{}
	}
}

// Park gives the seat back while the request waits for its client. It does nothing if the request has no seat or if too many requests are parked.
func (s *Seat) Park() {
	c := s.controller
	if c == nil || s.level.Exempt {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.flow == nil || s.parked {
		return
	}
	granted, ok := c.core.park(s.flow)
	if ok {
		s.parked = true
		c.executing[s.kind]--
	}
	c.wake(granted)
}

// Resume gets a seat again for a parked request. It returns at once if the request has a seat.
func (s *Seat) Resume(ctx context.Context) (waited time.Duration, ok bool) {
	c := s.controller
	if c == nil || s.level.Exempt {
		return 0, true
	}
	c.mu.Lock()
	if !s.parked {
		ok = s.flow != nil
		c.mu.Unlock()
		return 0, ok
	}
	c.core.unpark(s.flow)
	s.flow, s.parked = nil, false
	c.mu.Unlock()
	return c.enter(ctx, s)
}

// Leave ends the request. It may be called more than once.
func (s *Seat) Leave() {
	c := s.controller
	if c == nil {
		return
	}
	s.controller = nil
	if s.level.Exempt {
		c.exempt[s.kind].Add(-1)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s.flow == nil:
	case s.parked:
		c.core.unpark(s.flow)
	default:
		c.executing[s.kind]--
		c.wake(c.core.leave(s.flow))
	}
	s.flow, s.parked = nil, false
}

// Stats are the counts of a Controller.
type Stats struct {
	ReadOnly, Mutating int   // executing requests
	Waiting            int   // requests that wait for a seat
	Parked             int   // requests that wait for their clients
	Rejected           int64 // requests since the start
	Levels             []LevelStats
}

// LevelStats are the counts of a priority level.
type LevelStats struct {
	Name               string
	Executing, Waiting int
}

// Stats returns the current counts.
func (c *Controller) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats{ReadOnly: c.executing[0] + int(c.exempt[0].Load()), Mutating: c.executing[1] + int(c.exempt[1].Load()),
		Waiting: c.core.queued, Parked: c.core.parked, Rejected: c.rejected}
	for _, l := range c.core.levels {
		executing := l.inUse
		if l.Exempt {
			executing = int(c.exempt[0].Load() + c.exempt[1].Load())
		}
		s.Levels = append(s.Levels, LevelStats{l.Name, executing, l.queued})
	}
	return s
}
