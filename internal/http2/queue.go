package http2

import (
	"encoding/binary"
	"net"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const (
	// recordSize is the most that fits into a TLS record.
	recordSize = 16 << 10
	// frameHeaderSize is the size of a frame's header.
	frameHeaderSize = 9
	// queueLimit is how many bytes may be queued; a handler that finds more waits before it adds to them.
	queueLimit = 256 << 10
	// writeSize is how many bytes are written to the socket at a time.
	writeSize = 64 << 10
	// minData is the least part of a large body that is put into the rest of a record.
	minData = 1 << 10
)

// record is the content of one TLS record.
type record struct {
	n int // bytes of b that are used
	b [recordSize]byte
}

var records = sync.Pool{New: func() any { return new(record) }}

// pieces is the rest of a body that is in more than one slice.
type pieces struct {
	first []byte
	rest  [][]byte
	bytes int // of all slices together
}

func piecesOf(all [][]byte) pieces {
	p := pieces{rest: all}
	for _, b := range all {
		p.bytes += len(b)
	}
	return p
}

// next removes and returns the next bytes, at most n. There must be some.
func (p *pieces) next(n int) []byte {
	for len(p.first) == 0 {
		p.first, p.rest = p.rest[0], p.rest[1:]
	}
	b := p.first[:min(n, len(p.first))]
	p.first = p.first[len(b):]
	p.bytes -= len(b)
	return b
}

// queue holds the frames that wait to be sent on a connection, in records.
type queue struct {
	sealed []*record
	tail   *record // the last one, which has room
	bytes  int
}

func (q *queue) write(b []byte) {
	q.bytes += len(b)
	for len(b) > 0 {
		if q.tail == nil {
			q.tail = records.Get().(*record)
		}
		n := copy(q.tail.b[q.tail.n:], b)
		q.tail.n += n
		b = b[n:]
		if q.tail.n == recordSize {
			q.seal()
		}
	}
}

// seal ends the last record, though it has room.
func (q *queue) seal() {
	if q.tail != nil {
		q.sealed = append(q.sealed, q.tail)
		q.tail = nil
	}
}

// room returns how much data fits behind a frame header into the last record, or into a new one if that is too little.
func (q *queue) room() int {
	if q.tail != nil {
		if left := recordSize - q.tail.n - frameHeaderSize; left >= minData {
			return left
		}
	}
	return recordSize - frameHeaderSize
}

// data adds a DATA frame with the next n bytes of a body, at most room.
func (q *queue) data(stream uint32, p *pieces, n int, end bool) {
	if q.tail != nil && recordSize-q.tail.n-frameHeaderSize < n {
		q.seal()
	}
	var flags http2.Flags
	if end {
		flags = http2.FlagDataEndStream
	}
	q.head(http2.FrameData, flags, stream, n)
	for n > 0 {
		b := p.next(n)
		q.write(b)
		n -= len(b)
	}
}

// frame adds a frame.
func (q *queue) frame(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) {
	q.head(kind, flags, stream, len(payload))
	q.write(payload)
}

// head adds the header of a frame with a payload of n bytes.
func (q *queue) head(kind http2.FrameType, flags http2.Flags, stream uint32, n int) {
	head := [frameHeaderSize]byte{byte(n >> 16), byte(n >> 8), byte(n), byte(kind), byte(flags)}
	binary.BigEndian.PutUint32(head[5:], stream)
	q.write(head[:])
}

// headers adds a header block, in as many HEADERS and CONTINUATION frames as it takes.
func (q *queue) headers(stream uint32, block []byte, end bool, maxFrame int) {
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if end {
		flags = http2.FlagHeadersEndStream
	}
	for {
		n := min(len(block), maxFrame)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders
		}
		q.frame(kind, flags, stream, block[:n])
		if block = block[n:]; len(block) == 0 {
			return
		}
		kind, flags = http2.FrameContinuation, 0
	}
}

// takeAll moves all records out of the queue into a slice.
func (q *queue) takeAll(into []*record) []*record {
	q.seal()
	into = append(into, q.sealed...)
	clear(q.sealed)
	q.sealed, q.bytes = q.sealed[:0], 0
	return into
}

// drop empties the queue without sending.
func (q *queue) drop() {
	for _, r := range q.takeAll(nil) {
		r.n = 0
		records.Put(r)
	}
}

// write sends what is queued, unless another goroutine is writing: then that one sends it. It is called with c.mu held and releases it.
func (c *conn) write() {
	if c.writing {
		c.mu.Unlock()
		return
	}
	c.writing = true
	if c.runningHandlers > 1 && c.queue.bytes < recordSize { // other handlers may be about to add to it
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	for c.queue.bytes > 0 && c.failure == nil {
		c.batch = c.queue.takeAll(c.batch[:0])
		c.control = 0
		c.mu.Unlock()
		err := c.writeRecords()
		c.mu.Lock()
		if err != nil {
			c.fail(err)
		}
		c.wakeWaiters(queueLimit / recordSize)
	}
	c.writing = false
	c.mu.Unlock()
}

// writeRecords sends c.batch. Only the goroutine that has set c.writing calls it.
func (c *conn) writeRecords() (err error) {
	c.writer.hold()
	for _, r := range c.batch {
		if err == nil {
			_, err = c.tls.Write(r.b[:r.n])
		}
		if err == nil && c.writer.held() >= writeSize {
			err = c.flush(true)
		}
		r.n = 0
		records.Put(r)
	}
	if flushErr := c.flush(false); err == nil {
		err = flushErr
	}
	return err
}

// flush writes the held records to the socket, and bounds how long the client may leave them unread.
func (c *conn) flush(more bool) error {
	if err := c.writer.SetWriteDeadline(time.Now().Add(c.opts.WriteTimeout)); err != nil {
		return err
	}
	return c.writer.flush(more)
}

// recordWriter is the connection below TLS. It can hold the records that TLS writes, to write many with one system call.
type recordWriter struct {
	net.Conn
	mu      sync.Mutex
	holding bool
	b       []byte // records that are held
	onClose func() // called when the connection is closed, perhaps more than once
}

// Close closes the connection.
func (w *recordWriter) Close() error {
	err := w.Conn.Close()
	if w.onClose != nil {
		w.onClose()
	}
	return err
}

var heldBuffers = sync.Pool{New: func() any { b := make([]byte, 0, writeSize+2*recordSize); return &b }}

// Write writes to the connection, or holds what is written.
func (w *recordWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.holding {
		return w.Conn.Write(p)
	}
	w.b = append(w.b, p...)
	return len(p), nil
}

// hold has Write keep what is written until flush.
func (w *recordWriter) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holding = true
	w.b = *heldBuffers.Get().(*[]byte)
}

// held returns how many bytes are held.
func (w *recordWriter) held() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.b)
}

// flush writes what is held, and goes on holding if more is to come.
func (w *recordWriter) flush(more bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.Conn.Write(w.b)
	w.b = w.b[:0]
	if !more {
		b := w.b
		heldBuffers.Put(&b)
		w.b, w.holding = nil, false
	}
	return err
}
