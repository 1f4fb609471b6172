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

// stream is a request and its response. Its fields are guarded by the connection's mutex.
type stream struct {
	conn   *conn
	id     uint32
	cancel context.CancelFunc
	body   body

	err           error         // why nothing can be sent any more
	sendWindow    int64         // how much data the client accepts
	woken         chan struct{} // receives when the handler should check again whether it can send; nil until it has waited
	isWaiter      bool          // it is among the connection's waiters
	writeDeadline *time.Timer
	waits         waitLimits
	waiter        Waiter // told before each wait; may be nil
	waitsLimited  bool   // set by the first call of limitWaits

	handlerDone bool // the handler has returned
}

// Waiter is told whenever a request begins to wait for its client.
type Waiter = interface{ Waiting() }

// waitLimits bound how long a handler waits for its client, in either direction. No timer runs unless it waits.
type waitLimits struct {
	stall    time.Duration // without progress; unlimited if zero
	deadline time.Time     // in all; unlimited if zero
	since    time.Time     // when the response that waits made progress last; zero if it does not wait
}

// left returns how long a wait without progress since a time may still last; ok is false if it is unlimited.
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

// limitWaits sets the limits of waits and who is told of them. The first call locks nothing: until it returns, only the handler's goroutine uses these fields.
func (st *stream) limitWaits(stall time.Duration, deadline time.Time, waiter Waiter) {
	if st.waitsLimited {
		c := st.conn
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	st.waitsLimited, st.waits, st.waiter = true, waitLimits{stall: stall, deadline: deadline}, waiter
}

// notifyWaiter is called with c.mu held before the handler waits for the client.
func (st *stream) notifyWaiter() {
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

// wake has the handler check again whether it can send, if it waits.
func (st *stream) wake() {
	if st.woken == nil {
		return
	}
	select {
	case st.woken <- struct{}{}:
	default:
	}
}

// wait waits until something has changed. It is called with c.mu held, releases it, and returns with it held. shared says that the stream waits for what all
// streams share: the queue or the connection's window.
func (st *stream) wait(shared bool) {
	c := st.conn
	if st.woken == nil {
		st.woken = make(chan struct{}, 1)
	}
	if shared && !st.isWaiter {
		st.isWaiter = true
		c.waiters = append(c.waiters, st)
	}
	st.notifyWaiter()
	if st.waits.since.IsZero() {
		st.waits.since = time.Now()
	}
	if st.handlerDone {
		st.limitFinish()
	}
	left, limited := st.waits.left(st.waits.since)
	c.write() // nothing changes as long as the queue is not sent
	if !limited {
		<-st.woken
		c.mu.Lock()
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-st.woken:
		c.mu.Lock()
	case <-timer.C:
		c.mu.Lock()
		st.expire()
	}
}

// headers queues a header block, which encode writes to c.block.
func (st *stream) headers(encode func(), end bool) error {
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
	encode()
	c.queue.headers(st.id, c.block.Bytes(), end, c.maxFrame)
	return nil
}

// data queues a part of the body. It waits while the queue is full or a window is closed.
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
			if c.sendWindow <= 0 {
				st.wait(true)
				continue
			}
			if st.sendWindow <= 0 {
				st.wait(false)
				continue
			}
			n = int(min(int64(n), c.sendWindow, st.sendWindow))
			c.sendWindow -= int64(n)
			st.sendWindow -= int64(n)
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

// setWriteDeadline has writes fail from a time on.
func (st *stream) setWriteDeadline(at time.Time) {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.writeDeadline != nil {
		st.writeDeadline.Stop()
		st.writeDeadline = nil
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
			if st.writeDeadline == timer {
				st.expire()
			}
		})
		st.writeDeadline = timer
	}
}

// stopTimers stops the timers of the deadlines that a handler has set.
func (st *stream) stopTimers() {
	for _, timer := range []*time.Timer{st.writeDeadline, st.body.readDeadline} {
		if timer != nil {
			timer.Stop()
		}
	}
	st.writeDeadline, st.body.readDeadline = nil, nil
}

// stopWaiting removes a stream that has given up from the connection's waiters, where it would stay for as long as the client keeps the connection's window
// closed.
func (st *stream) stopWaiting() {
	if !st.isWaiter {
		return
	}
	st.isWaiter = false
	c := st.conn
	c.waiters = slices.DeleteFunc(c.waiters, func(other *stream) bool { return other == st })
}

// expire has writes fail: a deadline has passed.
func (st *stream) expire() {
	if st.err == nil {
		st.err = os.ErrDeadlineExceeded
		st.wake()
	}
}

// run runs the handler of a request.
func (c *conn) run(call handlerCall) {
	st, handler, r := call.stream, call.handler, call.request
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

// finish sends the rest of the response and removes the stream.
func (st *stream) finish(w *response, completed bool) {
	if completed {
		completed = w.finish() == nil
	}
	st.cancel()
	w.free()
	c := st.conn
	c.mu.Lock()
	st.stopTimers()
	st.stopWaiting()
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
	c.freeWindow(int64(st.body.buffered()))
	st.body.data = nil
	if c.runningHandlers--; c.runningHandlers == 0 {
		c.lastUse = time.Now()
	}
	if w.closeConn && !c.draining && c.failure == nil {
		c.draining = true
		c.goAway(http2.ErrCodeNo)
	}
	c.closeIfDrained()
	c.write()
}

// limitFinish bounds how long the client may leave unread what the handler wrote before it returned. Handlers without limits of their own, such as those of
// watches, get the connection's.
func (st *stream) limitFinish() {
	if st.waits.stall == 0 {
		st.waits.stall = st.conn.opts.WriteTimeout
	}
	if st.waits.deadline.IsZero() {
		st.waits.deadline = time.Now().Add(st.conn.opts.WriteTimeout)
	}
}

var errHandlerDone = errors.New("http2: the handler has returned")
