package flowcontrol

// core counts seats and decides who gets one. Its methods return the waiting requests that were given a seat.
type core struct {
	seats    int // of all levels that are not exempt
	inUse    int
	reserved int // seats that levels are guaranteed and do not use
	queued   int
	parked   int
	levels   []*level

	maxParked, maxFlowParked int
	spare                    []*flow // flows that are not in use, to be used again
}

// level is a priority level's seats and queues.
type level struct {
	Level
	guaranteed int
	inUse      int
	queued     int
	flows      map[flowKey]*flow
	// waiting are the flows with waiting requests, in the order in which they are served.
	waiting ring
}

type flowKey struct{ schema, distinguisher string }

// flow is the requests of one user or namespace in a level. It exists while it has any.
type flow struct {
	key    flowKey
	level  *level
	inUse  int
	parked int
	queue  []*waiter

	next, previous *flow // in level.waiting
}

// waiter is a request in a queue.
type waiter struct {
	flow    *flow
	granted bool
	ready   chan struct{}
}

func newCore(seats int, levels []Level, maxParked, maxFlowParked int) *core {
	c := &core{seats: seats, maxParked: maxParked, maxFlowParked: maxFlowParked}
	shares := 0
	for _, l := range levels {
		shares += l.Shares
	}
	for _, l := range levels {
		v := &level{Level: l, flows: map[flowKey]*flow{}}
		if !l.Exempt {
			nominal := (seats*l.Shares + shares - 1) / max(shares, 1)
			v.guaranteed = max(nominal-(nominal*l.LendablePercent+50)/100, 1)
			c.reserved += v.guaranteed
		}
		c.levels = append(c.levels, v)
	}
	return c
}

// free is how many seats a level can still take: those it is guaranteed, and of the pool as many as would leave no fewer than it has borrowed.
func (c *core) free(l *level) int {
	own, borrowed := l.guaranteed-l.inUse, 0
	if own < 0 {
		own, borrowed = 0, -own
	}
	return own + max(c.seats-c.inUse-c.reserved-borrowed, 0)
}

// mayTake says whether a flow stays within what it leaves free for others.
func (c *core) mayTake(f *flow) bool { return f.inUse < c.free(f.level) }

func (c *core) take(f *flow) {
	f.inUse++
	if f.level.inUse < f.level.guaranteed {
		c.reserved--
	}
	f.level.inUse++
	c.inUse++
}

func (c *core) giveBack(f *flow) {
	f.inUse--
	f.level.inUse--
	if f.level.inUse < f.level.guaranteed {
		c.reserved++
	}
	c.inUse--
}

// flow finds or makes a flow.
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

// maxSpare is how many unused flows are kept.
const maxSpare = 256

// forget drops a flow that has no requests.
func (c *core) forget(f *flow) {
	if f.inUse > 0 || f.parked > 0 || len(f.queue) > 0 {
		return
	}
	delete(f.level.flows, f.key)
	if len(c.spare) < maxSpare {
		*f = flow{queue: f.queue[:0]}
		c.spare = append(c.spare, f)
	}
}

// verdict is what happens to a request that arrives.
type verdict int

const (
	execute verdict = iota
	wait
	reject
)

// arrive gives a request a seat, puts it into its flow's queue, or rejects it. newWaiter is called if it has to wait.
func (c *core) arrive(l *level, key flowKey, newWaiter func() *waiter) (*flow, *waiter, verdict) {
	f := c.flow(l, key)
	if len(f.queue) == 0 && c.mayTake(f) {
		c.take(f)
		return f, nil, execute
	}
	if len(f.queue) >= l.QueueLength {
		c.forget(f)
		return nil, nil, reject
	}
	w := newWaiter()
	w.flow = f
	f.queue = append(f.queue, w)
	l.queued++
	c.queued++
	if len(f.queue) == 1 {
		l.waiting.push(f)
	}
	return f, w, wait
}

// leave ends a request that has a seat.
func (c *core) leave(f *flow) []*waiter {
	c.giveBack(f)
	granted := c.dispatch()
	c.forget(f)
	return granted
}

// withdraw takes a request that has no seat yet out of its queue.
func (c *core) withdraw(w *waiter) []*waiter {
	f := w.flow
	for i, other := range f.queue {
		if other != w {
			continue
		}
		f.queue = append(f.queue[:i], f.queue[i+1:]...)
		f.level.queued--
		c.queued--
		if len(f.queue) == 0 {
			f.level.waiting.remove(f)
		}
		c.forget(f)
		return c.dispatch()
	}
	return nil
}

// park takes the seat of a request that waits for its client, unless too many do.
func (c *core) park(f *flow) ([]*waiter, bool) {
	if c.parked >= c.maxParked || f.parked >= c.maxFlowParked {
		return nil, false
	}
	f.parked++
	c.parked++
	c.giveBack(f)
	return c.dispatch(), true
}

// unpark ends a parked request, or is followed by arrive if it needs a seat again.
func (c *core) unpark(f *flow) {
	f.parked--
	c.parked--
	c.forget(f)
}

// dispatch gives free seats to waiting requests, level by level and one flow after the other.
func (c *core) dispatch() (granted []*waiter) {
	if c.queued == 0 {
		return nil
	}
	for _, l := range c.levels {
		for l.queued > 0 {
			f := c.nextFlow(l)
			if f == nil {
				break
			}
			w := f.queue[0]
			f.queue[0] = nil
			f.queue = f.queue[1:]
			l.queued--
			c.queued--
			if len(f.queue) == 0 {
				f.queue = nil
				l.waiting.remove(f)
			} else {
				l.waiting.first = f.next
			}
			c.take(f)
			w.granted = true
			granted = append(granted, w)
		}
	}
	return granted
}

// nextFlow is the next waiting flow that may take a seat. Those that are passed over hold at least one seat each, so there are no more of them than seats.
func (c *core) nextFlow(l *level) *flow {
	free := c.free(l)
	if free <= 0 {
		return nil
	}
	f := l.waiting.first
	for range l.waiting.size {
		if f.inUse < free {
			return f
		}
		f = f.next
	}
	return nil
}

// ring is flows in a circle.
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
