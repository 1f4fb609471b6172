package flowcontrol

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options configure a Controller.
type Options struct {
	ReadOnly, Mutating int // seats of the server, which are shared by all priority levels
	// MaxWait is how long a request waits for a seat at most before it is rejected, unless the request says less.
	MaxWait time.Duration
	// MaxParked and MaxFlowParked bound the parked requests, in total and of one flow: 1000 and 100 if zero.
	MaxParked, MaxFlowParked int
	// Estimate returns the work of a request that is not exempt; one seat if nil.
	Estimate func(*Request) Work
	// Unfair has ReadOnly and Mutating bound the requests of these kinds, whosever they are: what is over them is rejected, unless it is an administrator's. 0 is no bound.
	Unfair bool
}

// Controller grants seats to requests.
type Controller struct {
	maxWait  time.Duration
	estimate func(*Request) Work
	unfair   bool
	config   atomic.Pointer[configuration]
	exempt   [2]atomic.Int64 // executing exempt requests, by Seat.kind
	waiting  atomic.Bool     // whether requests wait for seats

	mu        sync.Mutex
	core      *core
	executing [2]int // requests with a seat, by Seat.kind
	queued    [2]int // requests that wait for one, by Seat.kind
	rejected  int64  // since the start
	stalled   int    // rejected requests whose client is not told yet
	waiters   sync.Pool
}

// configuration is what requests are matched with. It is replaced as a whole.
type configuration struct {
	schemas []*schema // by precedence; the first that matches a request applies
	rest    *schema   // of requests that none matches
}

// schema is a Schema with its level.
type schema struct {
	Schema
	level *level
	// exempt is whether the level is: copied, as levels change under Controller.mu.
	exempt              bool
	schemaUID, levelUID []string // values of response headers
	counts              *counts
}

// catchAll is the schema and the level of requests that no other schema matches.
const catchAll = "catch-all"

// New returns a Controller. Unless Options.Unfair is set it has no levels, and nothing may be asked of it, until Configure was called.
func New(o Options) *Controller {
	if o.MaxParked == 0 {
		o.MaxParked = 1000
	}
	if o.MaxFlowParked == 0 {
		o.MaxFlowParked = 100
	}
	if o.Estimate == nil {
		o.Estimate = func(*Request) Work { return Work{} }
	}
	c := &Controller{maxWait: o.MaxWait, estimate: o.Estimate, unfair: o.Unfair}
	c.core = newCore(o.ReadOnly+o.Mutating, o.MaxParked, o.MaxFlowParked, func() int { return int(c.exempt[0].Load() + c.exempt[1].Load()) })
	c.waiters.New = func() any { return &waiter{ready: make(chan struct{}, 1)} }
	if o.Unfair {
		c.config.Store(c.newUnfair(o.ReadOnly, o.Mutating))
	}
	return c
}

// Configure replaces all levels and schemas at once. Requests that wait or execute go on in their levels, also in those that are gone. Schemas whose level does not
// exist are ignored; the level catch-all must exist.
func (c *Controller) Configure(levels []Level, schemas []Schema) {
	if c.unfair {
		return
	}
	schemas = slices.SortedFunc(slices.Values(schemas), compareSchemas)
	levels = slices.Clone(levels)
	c.mu.Lock()
	defer c.mu.Unlock()
	granted := c.core.setLevels(levels, func(name string) bool { return manyFlows(schemas, name) })
	byName := map[string]*level{}
	for _, l := range c.core.levels {
		if !l.draining {
			byName[l.Name] = l
		}
	}
	before := c.config.Load()
	next := &configuration{rest: newSchema(Schema{Name: catchAll, Level: catchAll, FlowBy: FlowByUser}, byName[catchAll], before)}
	for _, s := range schemas {
		l := byName[s.Level]
		if l == nil {
			continue
		}
		one := newSchema(s, l, before)
		next.schemas = append(next.schemas, one)
		if s.Name == catchAll {
			next.rest = one
		}
	}
	c.config.Store(next)
	c.wake(granted)
}

// manyFlows reports whether a level can have several flows.
func manyFlows(schemas []Schema, level string) bool {
	of := 0
	for i := range schemas {
		if schemas[i].Level == level {
			if of++; of > 1 || schemas[i].FlowBy != FlowBySchema {
				return true
			}
		}
	}
	return false
}

// newSchema returns a schema of a level, which goes on counting where the one of the same name and level stopped.
func newSchema(s Schema, l *level, before *configuration) *schema {
	next := &schema{Schema: s, level: l, exempt: l.Exempt, schemaUID: []string{s.UID}, levelUID: []string{l.UID}}
	for old := range before.all {
		if old.Name == s.Name && old.level == l {
			next.counts = old.counts
		}
	}
	if next.counts == nil {
		next.counts = newCounts()
	}
	return next
}

// all calls yield for each schema.
func (c *configuration) all(yield func(*schema) bool) {
	if c == nil {
		return
	}
	for _, s := range c.schemas {
		if !yield(s) {
			return
		}
	}
	if !slices.Contains(c.schemas, c.rest) && c.rest != nil {
		yield(c.rest)
	}
}

// newUnfair returns what Options.Unfair asks for: a level for each kind of requests, without queues.
func (c *Controller) newUnfair(readOnly, mutating int) *configuration {
	config := &configuration{}
	for i, seats := range []int{readOnly, mutating} {
		name := [2]string{"readOnly", "mutating"}[i]
		l := &level{Level: Level{Name: name, Exempt: seats == 0}, limits: limits{seats, seats, seats}, flows: map[flowKey]*flow{}}
		c.core.levels = append(c.core.levels, l)
		c.core.seats += seats
		c.core.reserved += seats
		one := newSchema(Schema{Name: name, Level: name}, l, nil)
		one.schemaUID, one.levelUID = nil, nil
		config.schemas = append(config.schemas, one)
	}
	return config
}

// classify returns the schema of a request.
func (c *Controller) classify(r *Request) *schema {
	config := c.config.Load()
	if c.unfair {
		return config.schemas[kindOf(r.Mutating)]
	}
	for _, s := range config.schemas {
		if s.matches(r) {
			return s
		}
	}
	return config.rest
}

func sortLevels(levels []*level) {
	slices.SortFunc(levels, func(a, b *level) int { return strings.Compare(a.Name, b.Name) })
}

func kindOf(mutating bool) int8 {
	if mutating {
		return 1
	}
	return 0
}

// Enter gets a seat for seat.Request and returns how long that waited for it. ok is false if there was none within the time that it may wait, or before ctx ended: the
// request must then be rejected. Seat.Leave gives the seat back.
func (c *Controller) Enter(ctx context.Context, seat *Seat) (waited time.Duration, ok bool) {
	s := c.classify(&seat.Request)
	seat.controller, seat.kind = c, kindOf(seat.Request.Mutating)
	if s.exempt {
		c.enterExempt(seat, s)
		return 0, true
	}
	work := c.estimate(&seat.Request)
	c.mu.Lock()
	for s.level.removed { // the configuration was replaced since the request was classified
		s = c.classify(&seat.Request)
	}
	seat.schema, seat.key = s, s.flow(&seat.Request)
	seat.setWork(work)
	waited, ok = c.enter(ctx, seat, false)
	if !ok && c.unfair && slices.Contains(seat.Request.Groups, masters) {
		c.enterExempt(seat, s)
		seat.administrator = true
		return 0, true
	}
	return waited, ok
}

func (c *Controller) enterExempt(seat *Seat, s *schema) {
	seat.schema = s
	c.exempt[seat.kind].Add(1)
	s.counts.exempt.Add(1)
	s.counts.exemptDispatched.Add(1)
}

// enter gets seats for a request, for the first time or again, if it resumes. It is called with c.mu held, and releases it.
func (c *Controller) enter(ctx context.Context, seat *Seat, resumes bool) (waited time.Duration, ok bool) {
	s := seat.schema
	f, w, decision := c.core.arrive(s.level, seat.key, seat.width, resumes, c.newWaiter)
	if resumes {
		c.wake(c.core.unpark(seat.flow))
		seat.flow, seat.parked = nil, false
	}
	switch decision {
	case execute:
		c.begin(seat, f, resumes, 0)
		c.mu.Unlock()
		return 0, true
	case rejectFull, rejectLimit:
		c.reject(seat, decision)
		c.mu.Unlock()
		return 0, false
	}
	w.seat = seat
	c.queued[seat.kind]++
	s.counts.enqueue(seat.width, len(f.queue))
	c.waiting.Store(true)
	c.mu.Unlock()

	began := time.Now()
	most := c.maxWait
	if seat.Request.MaxWait > 0 {
		most = min(most, seat.Request.MaxWait)
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-timer.C:
	case <-ctx.Done():
	}
	waited = time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queued[seat.kind]--
	s.counts.dequeue(seat.width)
	ok = w.granted // possibly at the same moment as the timeout
	if ok {
		c.begin(seat, f, resumes, waited)
	} else {
		if ctx.Err() == context.Canceled {
			s.level.canceled++
		} else {
			s.level.timedOut++
		}
		c.wake(c.core.withdraw(w))
		s.counts.wait(false, waited)
		c.reject(seat, wait)
	}
	c.freeWaiter(w)
	c.waiting.Store(c.core.queued > 0)
	return waited, ok
}

// begin notes that a request has got its seats.
func (c *Controller) begin(seat *Seat, f *flow, resumes bool, waited time.Duration) {
	seat.flow, seat.waited = f, seat.waited+waited
	c.executing[seat.kind]++
	counts := seat.schema.counts
	counts.executing++
	counts.seats += seat.width
	seat.list()
	if !resumes {
		f.level.dispatched++
		counts.wait(true, waited)
		counts.estimated.observe(float64(seat.width))
	}
}

// reject notes that a request is rejected.
func (c *Controller) reject(seat *Seat, why decision) {
	c.rejected++
	seat.schema.counts.rejected[why]++
	retry := &seat.schema.level.retry
	seat.retryAfter = retry.note(time.Now().Unix())
	if why != wait && retry.lately() > promptRejections && c.stalled < maxStalled { // one that has waited in vain was held back enough
		c.stalled++
		seat.stalled = true
	}
}

const (
	// promptRejections is how many rejections of a level are answered at once in a second. Clients that go on without waiting then cost more than their requests would.
	promptRejections = 100
	// stallTime is how long further rejections are held back, and maxStalled how many.
	stallTime  = time.Second
	maxStalled = 2000
)

func (c *Controller) newWaiter() *waiter { return c.waiters.Get().(*waiter) }

func (c *Controller) freeWaiter(w *waiter) {
	select {
	case <-w.ready:
	default:
	}
	w.flow, w.seat, w.granted = nil, nil, false
	c.waiters.Put(w)
}

func (c *Controller) wake(granted []*waiter) {
	for _, w := range granted {
		w.ready <- struct{}{}
	}
}

// dispatch grants seats that are free because exempt requests have ended.
func (c *Controller) dispatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake(c.core.dispatch())
}
