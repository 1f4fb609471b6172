package http2

import (
	"context"
	"errors"
	"net/http"
	"os"
	"runtime/debug"
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
	c.write() // nothing changes while what is queued stays there
	<-st.turn
	c.mu.Lock()
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
	st.expires = nil
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

var errHandlerDone = errors.New("http2: the handler has returned")
