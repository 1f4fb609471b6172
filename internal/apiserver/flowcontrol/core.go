package flowcontrol

// core counts seats and decides which requests get one. Its methods return the waiting requests that were granted a seat.
type core struct {
	limit    int // seats of the server
	seats    int // sum of the nominal limits, which are rounded up
	inUse    int // by levels that are not exempt
	reserved int // seats below their lower limits that levels do not use
	queued   int
	parked   int
	levels   []*level // by name
	// exemptLower is what exempt levels do not lend.
	exemptLower int

	maxParked, maxFlowParked int
	spare                    []*flow // unused flows, for reuse
	// exemptInUse returns how many exempt requests execute.
	exemptInUse func() int
}

// level holds the seats and queues of a priority level.
type level struct {
	Level
	limits
	// isolatesFlows is set if the level has several queues and can have several flows: a flow may then hold only a part of the seats.
	isolatesFlows bool
	draining      bool // the level was deleted and goes on until it has no requests
	removed       bool

	inUse     int // seats
	executing int // requests
	queued    int // requests
	flows     map[flowKey]*flow
	// waiting holds the flows with waiting requests, in the order in which they are served.
	waiting ring
	// held is set while the flow whose turn it is waits for more seats than are free: nobody overtakes it.
	held bool

	dispatched, rejected, timedOut, canceled int64 // requests so far
	retry                                    retryAfter
	seats                                    *Seat // requests that execute or are parked
}

type flowKey struct{ schema, distinguisher string }

// flow holds the requests of one flow in a level. It exists while it has any.
type flow struct {
	key       flowKey
	level     *level
	inUse     int // seats, those among them that are kept for a while after a request has ended
	executing int // requests
	parked    int
	queue     []*waiter
	owed      int // turns in which the flow is passed over, as its last request took so many seats more than one

	next, previous *flow // in level.waiting
}

// waiter is a request in a queue.
type waiter struct {
	flow    *flow
	seat    *Seat
	width   int
	granted bool
	ready   chan struct{}
}

func newCore(seats, maxParked, maxFlowParked int, exemptInUse func() int) *core {
	return &core{limit: seats, maxParked: maxParked, maxFlowParked: maxFlowParked, exemptInUse: exemptInUse}
}

// setLevels replaces the levels. Requests in them are kept: a level of the same name takes them over, and one that is gone goes on without them until it is idle.
func (c *core) setLevels(levels []Level, isolatesFlows func(name string) bool) []*waiter {
	old := map[string]*level{}
	for _, l := range c.levels {
		old[l.Name] = l
	}
	c.levels = c.levels[:0:0]
	for _, next := range levels {
		l := old[next.Name]
		if l == nil {
			l = &level{flows: map[flowKey]*flow{}}
		}
		delete(old, next.Name)
		l.Level, l.draining, l.isolatesFlows = next, false, next.Queues > 1 && isolatesFlows(next.Name)
		c.levels = append(c.levels, l)
	}
	for _, l := range old {
		if l.idle() {
			l.removed = true
			continue
		}
		l.draining = true
		c.levels = append(c.levels, l)
	}
	sortLevels(c.levels)
	c.setLimits()
	return c.dispatch()
}

// setLimits divides the seats among the levels.
func (c *core) setLimits() {
	c.seats, c.reserved, c.exemptLower = 0, 0, 0
	for i, limits := range divide(c.limit, c.levels) {
		l := c.levels[i]
		l.limits = limits
		c.seats += limits.nominal
		if l.Exempt {
			c.exemptLower += l.lower
		} else {
			c.reserved += max(l.lower-l.inUse, 0)
		}
	}
}

func (l *level) idle() bool { return len(l.flows) == 0 && l.executing == 0 }

// removeIfDrained removes a deleted level that has no requests any more.
func (c *core) removeIfDrained(l *level) {
	if !l.draining || l.removed || !l.idle() {
		return
	}
	l.removed = true
	for i, other := range c.levels {
		if other == l {
			c.levels = append(c.levels[:i:i], c.levels[i+1:]...)
			break
		}
	}
	c.setLimits()
}

// pool returns how many of the seats that levels lend are free.
func (c *core) pool() int {
	return max(c.seats-c.inUse-c.reserved-max(c.exemptLower, c.exemptInUse()), 0)
}

// free returns the number of seats a level can still take: those below its lower limit, from the pool those below its nominal limit, and beyond that as many as it
// leaves in the pool and its upper limit allows.
func (c *core) free(l *level) int {
	own := max(l.lower-l.inUse, 0)
	pool := c.pool()
	lent := min(pool, max(l.nominal-max(l.inUse, l.lower), 0))
	borrowed := max(l.inUse-l.nominal, 0)
	return min(own+lent+max(pool-lent-borrowed, 0), max(l.upper-l.inUse, 0))
}

// flowThreshold is how many times the seats that it leaves free a flow may hold.
const flowThreshold = 2

// mayHold reports whether a flow may have another request of that width beside those that it has, if its level has so many free seats.
func (c *core) mayHold(f *flow, width, free int) bool {
	return !f.level.isolatesFlows || f.inUse == 0 || f.inUse+width-1 < flowThreshold*free
}

// fits reports whether a request of that width can execute beside the others of the level. One that is wider than the level ever is executes alone.
func (l *level) fits(width, free int) bool { return width <= free || free > 0 && l.inUse == 0 }

func (c *core) use(l *level, seats int) {
	c.reserved -= max(l.lower-l.inUse, 0)
	l.inUse += seats
	c.inUse += seats
	c.reserved += max(l.lower-l.inUse, 0)
}

func (c *core) take(f *flow, width int) {
	f.inUse += width
	f.executing++
	f.level.executing++
	c.use(f.level, width)
}

func (c *core) giveBack(f *flow, width int) {
	f.inUse -= width
	c.use(f.level, -width)
}

// flow returns the flow with the key, a new one if there is none.
func (c *core) flow(l *level, key flowKey) *flow {
	f := l.flows[key]
	if f == nil {
		if n := len(c.spare); n > 0 {
			f, c.spare = c.spare[n-1], c.spare[:n-1]
		} else {
			f = &flow{}
		}
		f.key, f.level = key, l
		l.flows[key] = f
	}
	return f
}

// maxSpare is the number of unused flows that are kept for reuse.
const maxSpare = 256

// removeIfIdle removes a flow that has no requests and no seats.
func (c *core) removeIfIdle(f *flow) {
	if f.inUse > 0 || f.executing > 0 || f.parked > 0 || len(f.queue) > 0 {
		return
	}
	l := f.level
	delete(l.flows, f.key)
	if len(c.spare) < maxSpare {
		*f = flow{queue: f.queue[:0]}
		c.spare = append(c.spare, f)
	}
	if l.draining {
		c.removeIfDrained(l)
	}
}

// decision is what happens to an arriving request.
type decision int

const (
	execute decision = iota
	wait
	rejectFull  // there is no place in a queue
	rejectLimit // the level has no queues
)

// arrive grants a request seats, puts it into its flow's queue, or rejects it. newWaiter is called if it has to wait. A request that resumes has executed before: it
// may wait in any case.
func (c *core) arrive(l *level, key flowKey, width int, resumes bool, newWaiter func() *waiter) (*flow, *waiter, decision) {
	f := c.flow(l, key)
	if len(f.queue) == 0 && !l.held {
		if free := c.free(l); l.fits(width, free) && c.mayHold(f, width, free) {
			c.take(f, width)
			return f, nil, execute
		}
	}
	if !resumes && (len(f.queue) >= l.flowQueueLength() || l.queued >= l.queueLength()) {
		c.removeIfIdle(f)
		l.rejected++
		if l.Queues == 0 {
			return nil, nil, rejectLimit
		}
		return nil, nil, rejectFull
	}
	w := newWaiter()
	w.flow, w.width = f, width
	f.queue = append(f.queue, w)
	l.queued++
	c.queued++
	if len(f.queue) == 1 {
		l.waiting.push(f)
	}
	return f, w, wait
}

// leave ends a request that has seats, and gives these back.
func (c *core) leave(f *flow, width int) []*waiter {
	c.end(f)
	return c.release(f, width)
}

// end ends a request whose seats are to be released later.
func (c *core) end(f *flow) {
	f.executing--
	f.level.executing--
}

// release gives back seats of a request that has ended.
func (c *core) release(f *flow, width int) []*waiter {
	c.giveBack(f, width)
	c.removeIfIdle(f)
	return c.dispatch()
}

// withdraw removes a waiting request from its queue.
func (c *core) withdraw(w *waiter) []*waiter {
	f := w.flow
	for i, other := range f.queue {
		if other != w {
			continue
		}
		f.queue = append(f.queue[:i], f.queue[i+1:]...)
		f.level.queued--
		f.level.rejected++
		c.queued--
		if len(f.queue) == 0 {
			f.level.waiting.remove(f)
		}
		f.level.held = false
		c.removeIfIdle(f)
		return c.dispatch()
	}
	return nil
}

// park gives back the seats of a request that waits for its client, unless too many are parked.
func (c *core) park(f *flow, width int) ([]*waiter, bool) {
	if c.parked >= c.maxParked || f.parked >= c.maxFlowParked {
		return nil, false
	}
	f.parked++
	c.parked++
	c.end(f)
	c.giveBack(f, width)
	return c.dispatch(), true
}

// unpark ends the parking of a request that ends, or that has arrived again because it needs a seat.
func (c *core) unpark(f *flow) []*waiter {
	f.parked--
	c.parked--
	c.removeIfIdle(f)
	return c.dispatch()
}

// dispatch grants free seats to waiting requests: first in levels that have less than their nominal limit, then in all. Within a level flows are served in turn.
func (c *core) dispatch() (granted []*waiter) {
	if c.queued == 0 {
		return nil
	}
	for _, nominal := range []bool{true, false} {
		for _, l := range c.levels {
			for l.queued > 0 && (!nominal || l.inUse < l.nominal) {
				f := c.nextFlow(l)
				if f == nil {
					break
				}
				granted = append(granted, c.grant(f))
			}
		}
	}
	return granted
}

// grant grants the first waiting request of a flow its seats.
func (c *core) grant(f *flow) *waiter {
	l, w := f.level, f.queue[0]
	f.queue[0] = nil
	f.queue = f.queue[1:]
	l.queued--
	c.queued--
	l.waiting.first = f.next
	if len(f.queue) == 0 {
		f.queue, f.owed = nil, 0
		l.waiting.remove(f)
	} else {
		f.owed = w.width - 1
	}
	c.take(f, w.width)
	w.granted = true
	return w
}

// nextFlow returns the waiting flow whose request is to be granted its seats next, nil if there is none that may have them. It passes over flows that are at their
// threshold, which hold at least one seat each, and over those that owe turns, as many as they have got seats for.
func (c *core) nextFlow(l *level) *flow {
	l.held = false
	free := c.free(l)
	if free <= 0 {
		return nil
	}
	for f, passed := l.waiting.first, 0; passed < l.waiting.size; f = f.next {
		if f.owed > 0 {
			f.owed--
			passed = 0
			continue
		}
		width := f.queue[0].width
		if !c.mayHold(f, width, free) {
			passed++
			continue
		}
		if l.fits(width, free) {
			return f
		}
		l.held = true
		return nil
	}
	return nil
}

// ring is a circular list of flows.
type ring struct {
	first *flow
	size  int
}

// push adds a flow as the last to be served.
func (r *ring) push(f *flow) {
	r.size++
	if r.first == nil {
		f.next, f.previous = f, f
		r.first = f
		return
	}
	last := r.first.previous
	f.previous, f.next = last, r.first
	last.next, r.first.previous = f, f
}

func (r *ring) remove(f *flow) {
	r.size--
	if r.size == 0 {
		r.first = nil
	} else {
		f.previous.next, f.next.previous = f.next, f.previous
		if r.first == f {
			r.first = f.next
		}
	}
	f.next, f.previous = nil, nil
}
