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
	frameHead  = 9
	// queueLimit is how much may wait to be sent; whoever wants to add to more waits.
	queueLimit = 256 << 10
	// writeSize is how much is given to the kernel at a time.
	writeSize = 64 << 10
	// leastData is the least of a large body that is put into what is left of a record.
	leastData = 1 << 10
)

// record is a piece of what is to be sent.
type record struct {
	n int
	b [recordSize]byte
}

var records = sync.Pool{New: func() any { return new(record) }}

// pieces are what is left of a body that is in more than one place.
type pieces struct {
	first []byte
	rest  [][]byte
	bytes int // in all of them
}

func piecesOf(all [][]byte) pieces {
	p := pieces{rest: all}
	for _, b := range all {
		p.bytes += len(b)
	}
	return p
}

// next takes the next bytes, at most n, of which there must be some.
func (p *pieces) next(n int) []byte {
	for len(p.first) == 0 {
		p.first, p.rest = p.rest[0], p.rest[1:]
	}
	b := p.first[:min(n, len(p.first))]
	p.first = p.first[len(b):]
	p.bytes -= len(b)
	return b
}

// queue is what waits to be sent on a connection, in records.
type queue struct {
	full  []*record
	tail  *record
	bytes int
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

// seal ends the last record.
func (q *queue) seal() {
	if q.tail != nil {
		q.full = append(q.full, q.tail)
		q.tail = nil
	}
}

// room is how much data fits behind a frame header into the last record, or into a new one if that is not worth it.
func (q *queue) room() int {
	if q.tail != nil {
		if left := recordSize - q.tail.n - frameHead; left >= leastData {
			return left
		}
	}
	return recordSize - frameHead
}

// data adds a frame with the next n bytes of a body, at most room.
func (q *queue) data(stream uint32, p *pieces, n int, end bool) {
	if q.tail != nil && recordSize-q.tail.n-frameHead < n {
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

func (q *queue) frame(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) {
	q.head(kind, flags, stream, len(payload))
	q.write(payload)
}

// head adds the header of a frame with a payload of n bytes.
func (q *queue) head(kind http2.FrameType, flags http2.Flags, stream uint32, n int) {
	head := [frameHead]byte{byte(n >> 16), byte(n >> 8), byte(n), byte(kind), byte(flags)}
	binary.BigEndian.PutUint32(head[5:], stream)
	q.write(head[:])
}

// headers adds a header block, in as many frames as it takes.
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

// take empties the queue.
func (q *queue) take(into []*record) []*record {
	q.seal()
	into = append(into, q.full...)
	clear(q.full)
	q.full, q.bytes = q.full[:0], 0
	return into
}

// drop forgets what is queued.
func (q *queue) drop() {
	for _, r := range q.take(nil) {
		r.n = 0
		records.Put(r)
	}
}

// write sends what is queued, unless somebody else is doing so already; that one sends it then. It is called with c.mu held and
// releases it.
func (c *conn) write() {
	if c.writing {
		c.mu.Unlock()
		return
	}
	c.writing = true
	if c.running > 1 && c.queue.bytes < recordSize { // others may be about to add to it
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	for c.queue.bytes > 0 && c.failure == nil {
		c.batch = c.queue.take(c.batch[:0])
		c.control = 0
		c.mu.Unlock()
		err := c.writeRecords()
		c.mu.Lock()
		if err != nil {
			c.fail(err)
		}
		c.wakeInLine(queueLimit / recordSize)
	}
	c.writing = false
	c.mu.Unlock()
}

// writeRecords sends c.batch, which belongs to whoever is writing.
func (c *conn) writeRecords() (err error) {
	c.outbox.hold()
	for _, r := range c.batch {
		if err == nil {
			_, err = c.tls.Write(r.b[:r.n])
		}
		if err == nil && c.outbox.held() >= writeSize {
			err = c.release(true)
		}
		r.n = 0
		records.Put(r)
	}
	if released := c.release(false); err == nil {
		err = released
	}
	return err
}

func (c *conn) release(more bool) error {
	if err := c.outbox.SetWriteDeadline(time.Now().Add(c.opts.WriteTimeout)); err != nil {
		return err
	}
	return c.outbox.release(more)
}

// outbox is a connection that can hold what is written to it, to send it all at once.
type outbox struct {
	net.Conn
	mu      sync.Mutex
	holding bool
	b       []byte
	closed  func() // called when the connection is closed, perhaps more than once
}

// Close closes the connection.
func (o *outbox) Close() error {
	err := o.Conn.Close()
	if o.closed != nil {
		o.closed()
	}
	return err
}

var outboxes = sync.Pool{New: func() any { b := make([]byte, 0, writeSize+2*recordSize); return &b }}

func (o *outbox) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.holding {
		return o.Conn.Write(p)
	}
	o.b = append(o.b, p...)
	return len(p), nil
}

func (o *outbox) hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holding = true
	o.b = *outboxes.Get().(*[]byte)
}

func (o *outbox) held() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.b)
}

// release sends what was held, and holds on if there is more to come.
func (o *outbox) release(more bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, err := o.Conn.Write(o.b)
	o.b = o.b[:0]
	if !more {
		b := o.b
		outboxes.Put(&b)
		o.b, o.holding = nil, false
	}
	return err
}
