package http2

import (
	"context"
	"errors"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/net/http2"
)

// stream is a request and its answer. What is here is guarded by the connection's mutex.
type stream struct {
	conn   *conn
	id     uint32
	cancel context.CancelFunc
	body   body

	err     error // why nothing can be sent any more
	window  int64 // how much data the client takes
	turn    chan struct{}
	inLine  bool
	expires *time.Timer // the handler's deadline for writing
	waits   waitLimits
	waiter  Waiter // nil unless somebody wants to know
	// waitsLimited is set by the first call of limitWaits.
	waitsLimited bool

	finishing bool // the handler has returned
}

// Waiter is told that a request begins to wait for its client.
type Waiter = interface{ Waiting() }

// waitLimits bound how long a handler waits for its client, in either direction. No timer runs unless it waits.
type waitLimits struct {
	stall    time.Duration // without progress; unlimited if zero
	deadline time.Time     // in all; unlimited if zero
	since    time.Time     // the last progress of an answer that waits; zero if it does not
}

// left is how long a wait may still last that has made no progress since then; ok is false if it is unlimited.
func (l *waitLimits) left(since time.Time) (d time.Duration, ok bool) {
	if l.stall > 0 {
		d, ok = max(time.Until(since.Add(l.stall)), 0), true
	}
	if !l.deadline.IsZero() {
		if until := max(time.Until(l.deadline), 0); !ok || until < d {
			d, ok = until, true
		}
	}
	return d, ok
}

// limitWaits sets the limits and whom to tell of waits. The first call locks nothing: until it returns, only the handler's goroutine uses these fields.
func (st *stream) limitWaits(stall time.Duration, deadline time.Time, waiter Waiter) {
	if st.waitsLimited {
		c := st.conn
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	st.waitsLimited, st.waits, st.waiter = true, waitLimits{stall: stall, deadline: deadline}, waiter
}

// waiting is called with c.mu held before the handler waits for the client.
func (st *stream) waiting() {
	if st.waiter != nil {
		st.waiter.Waiting()
	}
}

// abort ends a stream from outside its handler.
func (st *stream) abort(err error) {
	if st.err == nil {
		st.err = err
	}
	st.body.end(err)
	st.wake()
	st.cancel()
}

// wake has the handler look again whether it can send, if it waits.
func (st *stream) wake() {
	if st.turn == nil {
		return
	}
	select {
	case st.turn <- struct{}{}:
	default:
	}
}

// wait waits, with c.mu held at both ends, until something has changed. In line it waits for what all streams share.
func (st *stream) wait(inLine bool) {
	c := st.conn
	if st.turn == nil {
		st.turn = make(chan struct{}, 1)
	}
	if inLine && !st.inLine {
		st.inLine = true
		c.line = append(c.line, st)
	}
	st.waiting()
	if st.waits.since.IsZero() {
		st.waits.since = time.Now()
	}
	if st.finishing {
		st.limitFinish()
	}
	left, limited := st.waits.left(st.waits.since)
	c.write() // nothing changes while what is queued stays there
	if !limited {
		<-st.turn
		c.mu.Lock()
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-st.turn:
		c.mu.Lock()
	case <-timer.C:
		c.mu.Lock()
		st.expire()
	}
}

// headers sends a header block.
func (st *stream) headers(write func(), end bool) error {
	c := st.conn
	if st.err != nil {
		return st.err
	}
	for c.queue.bytes >= queueLimit {
		if st.wait(true); st.err != nil {
			return st.err
		}
	}
	c.block.Reset()
	write()
	c.queue.headers(st.id, c.block.Bytes(), end, c.maxFrame)
	return nil
}

// data sends a part of the body, waiting while the client or the queue takes no more.
func (st *stream) data(p pieces, end bool) error {
	c := st.conn
	for p.bytes > 0 || end {
		if st.err != nil {
			return st.err
		}
		if c.queue.bytes >= queueLimit {
			st.wait(true)
			continue
		}
		n := min(p.bytes, c.queue.room(), c.maxFrame)
		if n > 0 {
			if c.window <= 0 {
				st.wait(true)
				continue
			}
			if st.window <= 0 {
				st.wait(false)
				continue
			}
			n = int(min(int64(n), c.window, st.window))
			c.window -= int64(n)
			st.window -= int64(n)
		}
		if !st.waits.since.IsZero() {
			st.waits.since = time.Time{}
		}
		last := n == p.bytes
		c.queue.data(st.id, &p, n, end && last)
		if last {
			return nil
		}
	}
	return st.err
}

// setWriteDeadline has sending fail from then on.
func (st *stream) setWriteDeadline(at time.Time) {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.expires != nil {
		st.expires.Stop()
		st.expires = nil
	}
	switch {
	case at.IsZero():
	case !at.After(time.Now()):
		st.expire()
	default:
		var timer *time.Timer
		timer = time.AfterFunc(time.Until(at), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if st.expires == timer {
				st.expire()
			}
		})
		st.expires = timer
	}
}

// stopTimers ends the handler's deadlines when it has returned.
func (st *stream) stopTimers() {
	for _, timer := range []*time.Timer{st.expires, st.body.expires} {
		if timer != nil {
			timer.Stop()
		}
	}
	st.expires, st.body.expires = nil, nil
}

// leaveLine takes a stream that has given up out of the line, in which it would stay for as long as the client keeps the connection's window closed.
func (st *stream) leaveLine() {
	if !st.inLine {
		return
	}
	st.inLine = false
	c := st.conn
	c.line = slices.DeleteFunc(c.line, func(other *stream) bool { return other == st })
}

func (st *stream) expire() {
	if st.err == nil {
		st.err = os.ErrDeadlineExceeded
		st.wake()
	}
}

// run runs the handler of a request.
func (c *conn) run(todo work) {
	st, handler, r := todo.stream, todo.handler, todo.request
	w := &response{st: st, request: r, header: http.Header{}}
	completed := false
	defer func() {
		if !completed {
			if p := recover(); p != nil && p != http.ErrAbortHandler && c.server.ErrorLog != nil {
				c.server.ErrorLog.Printf("http2: panic serving %v: %v\n%s", c.remote, p, debug.Stack())
			}
		}
		st.finish(w, completed)
	}()
	handler.ServeHTTP(w, r)
	completed = true
}

// finish sends what is left of the answer and forgets the stream.
func (st *stream) finish(w *response, completed bool) {
	if completed {
		completed = w.finish() == nil
	}
	st.cancel()
	w.free()
	c := st.conn
	c.mu.Lock()
	st.stopTimers()
	st.leaveLine()
	if _, open := c.streams[st.id]; open {
		switch {
		case !completed:
			c.reset(st.id, http2.ErrCodeInternal)
		case !st.body.ended:
			c.reset(st.id, http2.ErrCodeNo) // the client need not send the rest
		}
		delete(c.streams, st.id)
	}
	st.body.end(errHandlerDone)
	c.giveBack(int64(st.body.buffered()))
	st.body.data = nil
	if c.running--; c.running == 0 {
		c.lastUse = time.Now()
	}
	if w.closing && !c.draining && c.failure == nil {
		c.draining = true
		c.goAway(http2.ErrCodeNo)
	}
	c.hangUpIfDone()
	c.write()
}

// limitFinish bounds how long the client may leave unread what its handler wrote before it returned. Handlers without limits of their own, such as those
// of streams, get the connection's.
func (st *stream) limitFinish() {
	if st.waits.stall == 0 {
		st.waits.stall = st.conn.opts.WriteTimeout
	}
	if st.waits.deadline.IsZero() {
		st.waits.deadline = time.Now().Add(st.conn.opts.WriteTimeout)
	}
}

var errHandlerDone = errors.New("http2: the handler has returned")
