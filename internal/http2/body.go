package http2

import (
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// body is the body of a request, as its handler reads it. Its fields are guarded by the connection's mutex.
type body struct {
	st       *stream
	changed  sync.Cond
	data     []byte // received data; the handler has read it up to read
	read     int
	err      error // what Read returns after the data
	ended    bool  // no more data is received
	declared int64 // the client's Content-Length, or -1
	received int64
	window   int64 // how much the client may send
	freed    int64 // how much was read since the client was last sent a WINDOW_UPDATE
	request  *http.Request

	expectsContinue bool // the client waits for 100 Continue before it sends the body
	closedByHandler bool
	readDeadline    *time.Timer
}

func (b *body) buffered() int { return len(b.data) - b.read }

// receive adds data of a DATA frame. size is its length with padding, which counts for the windows.
func (b *body) receive(data []byte, size int64, end bool) error {
	c := b.st.conn
	streamError := func(code http2.ErrCode) error {
		c.freeWindow(size)
		return http2.StreamError{StreamID: b.st.id, Code: code}
	}
	if b.window -= size; b.window < 0 {
		return streamError(http2.ErrCodeFlowControl)
	}
	b.received += int64(len(data))
	if b.declared >= 0 && (b.received > b.declared || end && b.received != b.declared) {
		return streamError(http2.ErrCodeProtocol)
	}
	if b.read == len(b.data) {
		b.data, b.read = b.data[:0], 0
	}
	b.data = append(b.data, data...)
	b.freeWindow(size - int64(len(data))) // padding is not kept
	if end {
		b.end(io.EOF)
		return nil
	}
	b.changed.Signal()
	return nil
}

// freeWindow frees n bytes of the windows, and sends a WINDOW_UPDATE once half of a window is free.
func (b *body) freeWindow(n int64) {
	if n == 0 {
		return
	}
	b.st.conn.freeWindow(n)
	if b.freed += n; !b.ended && b.freed >= streamWindow/2 {
		b.window += b.freed
		b.st.conn.windowUpdate(b.st.id, uint32(b.freed))
		b.freed = 0
	}
}

// end ends the body: after the data, Read returns err.
func (b *body) end(err error) {
	if !b.ended {
		b.ended, b.err = true, err
	}
	b.changed.Broadcast()
}

// Read reads the body.
func (b *body) Read(p []byte) (int, error) {
	c := b.st.conn
	c.mu.Lock()
	if b.expectsContinue {
		b.expectsContinue = false
		_ = b.st.headers(func() { c.field(":status", "100", false) }, false)
		c.write()
		c.mu.Lock()
	}
	if b.buffered() == 0 && b.err == nil && len(p) > 0 && !b.closedByHandler {
		b.wait()
	}
	if b.closedByHandler {
		c.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	}
	n := copy(p, b.data[b.read:])
	b.read += n
	var err error
	if n == 0 && len(p) > 0 {
		err = b.err
	}
	b.freeWindow(int64(n))
	if c.control > 0 {
		c.write()
	} else {
		c.mu.Unlock()
	}
	return n, err
}

// wait waits until there is data to read or the limit of the handler's wait has passed. The connection's mutex is held when it is called and when it returns.
func (b *body) wait() {
	b.st.notifyWaiter()
	if left, limited := b.st.waits.left(time.Now()); limited {
		c := b.st.conn
		waitDone := false
		timer := time.AfterFunc(left, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if !waitDone && b.buffered() == 0 && b.err == nil {
				b.err = os.ErrDeadlineExceeded
				b.changed.Broadcast()
			}
		})
		defer func() {
			waitDone = true
			timer.Stop()
		}()
	}
	for b.buffered() == 0 && b.err == nil && !b.closedByHandler {
		b.changed.Wait()
	}
}

// Close has reads fail from now on.
func (b *body) Close() error {
	c := b.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	b.closedByHandler = true
	b.changed.Broadcast()
	return nil
}

// setReadDeadline has reads fail from a time on.
func (b *body) setReadDeadline(at time.Time) {
	c := b.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.readDeadline != nil {
		b.readDeadline.Stop()
		b.readDeadline = nil
	}
	if at.IsZero() || b.ended {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(at), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if b.readDeadline == timer && b.err == nil {
			b.err = os.ErrDeadlineExceeded
			b.changed.Broadcast()
		}
	})
	b.readDeadline = timer
}
