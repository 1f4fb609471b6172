package flowcontrol

// core counts seats and decides which requests get one. Its methods return the waiting requests that were granted a seat.
type core struct {
	seats    int // of all levels that are not exempt
	inUse    int
	reserved int // guaranteed seats that their levels do not use
	queued   int
	parked   int
	levels   []*level

	maxParked, maxFlowParked int
	spare                    []*flow // unused flows, for reuse
}

// level holds the seats and queues of a priority level.
type level struct {
	Level
	guaranteed int
	inUse      int
	queued     int
	flows      map[flowKey]*flow
	// waiting holds the flows with waiting requests, in the order in which they are served.
	waiting ring
}

type flowKey struct{ schema, distinguisher string }

// flow holds the requests of one flow in a level. It exists while it has any.
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

// free returns the number of seats a level can still take: its unused guaranteed seats, and from the pool as many as leave no fewer than it has borrowed.
func (c *core) free(l *level) int {
	unused, borrowed := l.guaranteed-l.inUse, 0
	if unused < 0 {
		unused, borrowed = 0, -unused
	}
	return unused + max(c.seats-c.inUse-c.reserved-borrowed, 0)
}

// mayTake reports whether a flow holds fewer seats than it leaves free for others.
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

// removeIfIdle removes a flow that has no requests.
func (c *core) removeIfIdle(f *flow) {
	if f.inUse > 0 || f.parked > 0 || len(f.queue) > 0 {
		return
	}
	delete(f.level.flows, f.key)
	if len(c.spare) < maxSpare {
		*f = flow{queue: f.queue[:0]}
		c.spare = append(c.spare, f)
	}
}

// decision is what happens to an arriving request.
type decision int

const (
	execute decision = iota
	wait
	reject
)

// arrive grants a request a seat, puts it into its flow's queue, or rejects it. newWaiter is called if it has to wait.
func (c *core) arrive(l *level, key flowKey, newWaiter func() *waiter) (*flow, *waiter, decision) {
	f := c.flow(l, key)
	if len(f.queue) == 0 && c.mayTake(f) {
		c.take(f)
		return f, nil, execute
	}
	if len(f.queue) >= l.QueueLength {
		c.removeIfIdle(f)
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
	c.removeIfIdle(f)
	return granted
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
		c.queued--
		if len(f.queue) == 0 {
			f.level.waiting.remove(f)
		}
		c.removeIfIdle(f)
		return c.dispatch()
	}
	return nil
}

// park gives back the seat of a request that waits for its client, unless too many are parked.
func (c *core) park(f *flow) ([]*waiter, bool) {
	if c.parked >= c.maxParked || f.parked >= c.maxFlowParked {
		return nil, false
	}
	f.parked++
	c.parked++
	c.giveBack(f)
	return c.dispatch(), true
}

// unpark ends the parking of a request that ends, or that arrives again because it needs a seat.
func (c *core) unpark(f *flow) {
	f.parked--
	c.parked--
	c.removeIfIdle(f)
}

// dispatch grants free seats to waiting requests, level by level and round-robin over the flows of a level.
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

// nextFlow returns the next waiting flow that may take a seat, nil if none. Each flow that it passes over holds at least one seat, so it passes over no more flows than there are seats.
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
