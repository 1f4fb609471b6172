package http2

import (
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// body is what a client sends with a request. It is guarded by the connection's mutex.
type body struct {
	st       *stream
	changed  sync.Cond
	data     []byte // what the handler has not read, from read on
	read     int
	err      error // what comes after the data
	ended    bool  // nothing more comes
	declared int64 // the size the client said, or -1
	got      int64
	window   int64 // how much the client may send
	free     int64 // how much more it could
	request  *http.Request
	hurry    bool // the client waits to be told to go on
	closed   bool // the handler wants no more
	expires  *time.Timer
}

func (b *body) buffered() int { return len(b.data) - b.read }

// take takes in what came. size is what it counts for.
func (b *body) take(data []byte, size int64, end bool) error {
	c := b.st.conn
	broken := func(code http2.ErrCode) error {
		c.giveBack(size)
		return http2.StreamError{StreamID: b.st.id, Code: code}
	}
	if b.window -= size; b.window < 0 {
		return broken(http2.ErrCodeFlowControl)
	}
	b.got += int64(len(data))
	if b.declared >= 0 && (b.got > b.declared || end && b.got != b.declared) {
		return broken(http2.ErrCodeProtocol)
	}
	if b.read == len(b.data) {
		b.data, b.read = b.data[:0], 0
	}
	b.data = append(b.data, data...)
	b.giveBack(size - int64(len(data))) // padding takes no room
	if end {
		b.end(io.EOF)
		return nil
	}
	b.changed.Signal()
	return nil
}

// giveBack opens the windows for n bytes that were read.
func (b *body) giveBack(n int64) {
	if n == 0 {
		return
	}
	b.st.conn.giveBack(n)
	if b.free += n; !b.ended && b.free >= streamWindow/2 {
		b.window += b.free
		b.st.conn.windowUpdate(b.st.id, uint32(b.free))
		b.free = 0
	}
}

// end says what comes after the data.
func (b *body) end(err error) {
	if !b.ended {
		b.ended, b.err = true, err
	}
	b.changed.Broadcast()
}

// Read reads what the client sends.
func (b *body) Read(p []byte) (int, error) {
	c := b.st.conn
	c.mu.Lock()
	if b.hurry {
		b.hurry = false
		_ = b.st.headers(func() { c.field(":status", "100", false) }, false)
		c.write()
		c.mu.Lock()
	}
	if b.buffered() == 0 && b.err == nil && len(p) > 0 && !b.closed {
		b.wait()
	}
	if b.closed {
		c.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	}
	n := copy(p, b.data[b.read:])
	b.read += n
	var err error
	if n == 0 && len(p) > 0 {
		err = b.err
	}
	b.giveBack(int64(n))
	if c.control > 0 {
		c.write()
	} else {
		c.mu.Unlock()
	}
	return n, err
}

// wait waits, with the connection's mutex held at both ends, until there is something to read or the handler may wait no longer.
func (b *body) wait() {
	b.st.waiting()
	if left, limited := b.st.waits.left(time.Now()); limited {
		c := b.st.conn
		over := false
		timer := time.AfterFunc(left, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if !over && b.buffered() == 0 && b.err == nil {
				b.err = os.ErrDeadlineExceeded
				b.changed.Broadcast()
			}
		})
		defer func() {
			over = true
			timer.Stop()
		}()
	}
	for b.buffered() == 0 && b.err == nil && !b.closed {
		b.changed.Wait()
	}
}

// Close says that the handler wants no more.
func (b *body) Close() error {
	c := b.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	b.closed = true
	b.changed.Broadcast()
	return nil
}

// setReadDeadline has reading fail from then on.
func (b *body) setReadDeadline(at time.Time) {
	c := b.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.expires != nil {
		b.expires.Stop()
		b.expires = nil
	}
	if at.IsZero() || b.ended {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(at), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if b.expires == timer && b.err == nil {
			b.err = os.ErrDeadlineExceeded
			b.changed.Broadcast()
		}
	})
	b.expires = timer
}
