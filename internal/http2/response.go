package http2

import (
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
)

// bufferSize is how much of an answer is gathered before it is queued; what a handler writes in larger pieces is queued as it comes.
const bufferSize = 4 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, bufferSize); return &b }}

// response is how a handler answers. Handlers use it from one goroutine at a time, but for deadlines.
type response struct {
	st       *stream
	request  *http.Request
	header   http.Header
	status   int
	fields   []hpack.HeaderField // the header as it was when it was written
	sent     bool                // the header is on its way
	declared int64               // the size of the body, or -1
	written  int64
	buffer   *[]byte
	trailers []string
	finished bool // the handler has returned
	closing  bool // the client is to go elsewhere afterwards
}

// Header is the header of the answer, and later its trailer.
func (w *response) Header() http.Header { return w.header }

// WriteHeader begins the answer.
func (w *response) WriteHeader(code int) {
	if w.status != 0 {
		return
	}
	if code < 100 || code > 999 {
		panic("http2: invalid status " + strconv.Itoa(code))
	}
	if code < 200 && code != http.StatusSwitchingProtocols {
		w.inform(code)
		return
	}
	w.status, w.declared = code, -1
	if v := w.header["Content-Length"]; len(v) > 0 {
		if n, err := strconv.ParseInt(v[0], 10, 64); err == nil && n >= 0 {
			w.declared = n
		} else {
			delete(w.header, "Content-Length")
		}
	}
	w.closing = httpguts.HeaderValuesContainsToken(w.header["Connection"], "close")
	for _, list := range w.header["Trailer"] {
		for _, name := range strings.Split(list, ",") {
			w.trailers = append(w.trailers, canonical(textproto.TrimString(name)))
		}
	}
	w.fields = fieldsOf(w.header, w.trailers, make([]hpack.HeaderField, 0, len(w.header)+3))
}

// inform sends a header that is not yet the answer.
func (w *response) inform(code int) {
	c := w.st.conn
	fields := fieldsOf(w.header, nil, nil)
	c.mu.Lock()
	_ = w.st.headers(func() { c.fields(code, fields) }, false)
	c.write()
}

// hasBody says whether the answer may have one.
func (w *response) hasBody() bool {
	return w.request.Method != http.MethodHead && bodyAllowed(w.status)
}

func bodyAllowed(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// Write adds to the body.
func (w *response) Write(p []byte) (int, error) {
	if err := w.add(pieces{first: p, bytes: len(p)}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteAll adds to the body what is in several places, as if it were in one. It is not changed, nor is it kept.
func (w *response) WriteAll(all [][]byte) error { return w.add(piecesOf(all)) }

// add buffers what is small, and queues what is not.
func (w *response) add(p pieces) error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !bodyAllowed(w.status) {
		return http.ErrBodyNotAllowed
	}
	if w.written += int64(p.bytes); w.declared >= 0 && w.written > w.declared {
		return http.ErrContentLength
	}
	if w.sent && !w.hasBody() {
		return nil
	}
	if w.buffer == nil && p.bytes <= bufferSize {
		w.buffer = buffers.Get().(*[]byte)
	}
	if w.buffer != nil && len(*w.buffer)+p.bytes <= bufferSize {
		for p.bytes > 0 {
			*w.buffer = append(*w.buffer, p.next(p.bytes)...)
		}
		return nil
	}
	c := w.st.conn
	c.mu.Lock()
	err := w.send(p, false)
	if c.queue.bytes >= writeSize {
		w.st.waiting() // if the client does not read
		c.write()
	} else {
		c.mu.Unlock()
	}
	return err
}

// send queues what is buffered, and p, with the header before it if that was not sent yet.
func (w *response) send(p pieces, end bool) error {
	var buffered []byte
	if w.buffer != nil {
		buffered = *w.buffer
	}
	if !w.sent {
		w.sent = true
		w.complete(buffered, p)
		bare := end && len(buffered) == 0 && p.bytes == 0 || !w.hasBody()
		if err := w.st.headers(func() { w.st.conn.fields(w.status, w.fields) }, bare); err != nil || bare {
			return err
		}
	}
	if !w.hasBody() {
		return nil
	}
	if err := w.st.data(pieces{first: buffered, bytes: len(buffered)}, end && p.bytes == 0); err != nil {
		return err
	}
	w.free()
	if p.bytes == 0 {
		return nil
	}
	return w.st.data(p, end)
}

// complete adds the fields that net/http adds too.
func (w *response) complete(buffered []byte, p pieces) {
	size := len(buffered) + p.bytes
	if _, typed := w.header["Content-Type"]; !typed && size > 0 && w.header.Get("Content-Encoding") == "" {
		first := buffered
		if len(first) == 0 {
			first = p.next(size)
		}
		w.fields = append(w.fields, hpack.HeaderField{Name: "content-type", Value: http.DetectContentType(first)})
	}
	if w.finished && w.declared < 0 && bodyAllowed(w.status) && (w.hasBody() || len(buffered) > 0) {
		w.fields = append(w.fields, hpack.HeaderField{Name: "content-length", Value: strconv.Itoa(size)})
	}
	if _, dated := w.header["Date"]; !dated {
		w.fields = append(w.fields, hpack.HeaderField{Name: "date", Value: date()})
	}
}

// Flush sends what was written so far.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError sends what was written so far, and says if that cannot be.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	c := w.st.conn
	c.mu.Lock()
	err := w.send(pieces{}, false)
	c.write()
	return err
}

// SetWriteDeadline has writing fail from then on.
func (w *response) SetWriteDeadline(at time.Time) error {
	w.st.setWriteDeadline(at)
	return nil
}

// SetReadDeadline has reading the request's body fail from then on.
func (w *response) SetReadDeadline(at time.Time) error {
	w.st.body.setReadDeadline(at)
	return nil
}

// LimitWaits bounds how long the handler waits for its client, to read the body or to write the answer: for so long without progress, and never past the deadline. After that
// reading and writing fail, and the client sees RST_STREAM. A limit that is zero is none. waiter, if not nil, is told of each wait before it begins, with the connection locked:
// it must not use the request. Unlike deadlines, limits cost nothing while nobody waits. The first call must come before the handler reads, writes or starts a goroutine that does.
func (w *response) LimitWaits(stall time.Duration, deadline time.Time, waiter Waiter) {
	w.st.limitWaits(stall, deadline, waiter)
}

// EnableFullDuplex says that the body may be read while the answer is written: it always may.
func (w *response) EnableFullDuplex() error { return nil }

// finish queues what is left of the answer. The caller has it sent.
func (w *response) finish() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	c := w.st.conn
	trailers := w.trailer()
	w.finished = true
	c.mu.Lock()
	defer c.mu.Unlock()
	w.st.finishing, w.st.waiter = true, nil
	if err := w.send(pieces{}, len(trailers) == 0); err != nil || len(trailers) == 0 {
		return err
	}
	return w.st.headers(func() { c.fields(0, trailers) }, true)
}

// trailer is what the handler set in the header after the body, having said that it would.
func (w *response) trailer() []hpack.HeaderField {
	late := http.Header{}
	for _, name := range w.trailers {
		if v := w.header[name]; v != nil {
			late[name] = v
		}
	}
	for name, v := range w.header {
		if rest, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			late[canonical(rest)] = v
		}
	}
	if len(late) == 0 {
		return nil
	}
	return fieldsOf(late, nil, nil)
}

// free gives the buffer back.
func (w *response) free() {
	if w.buffer != nil {
		*w.buffer = (*w.buffer)[:0]
		buffers.Put(w.buffer)
		w.buffer = nil
	}
}

// fieldsOf lists the fields of a header but for those that come later and those that HTTP/2 has no use for.
func fieldsOf(h http.Header, later []string, fields []hpack.HeaderField) []hpack.HeaderField {
	for name, values := range h {
		lower, ok := wireName(name)
		if !ok || strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		if len(later) > 0 && contains(later, name) {
			continue
		}
		for _, v := range values {
			if httpguts.ValidHeaderFieldValue(v) {
				fields = append(fields, hpack.HeaderField{Name: lower, Value: v})
			}
		}
	}
	return fields
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// fields encodes a header.
func (c *conn) fields(status int, fields []hpack.HeaderField) {
	switch status {
	case 0:
	case http.StatusOK:
		c.field(":status", "200", false)
	default:
		c.field(":status", strconv.Itoa(status), false)
	}
	for _, f := range fields {
		c.field(f.Name, f.Value, changes[f.Name])
	}
}

// changes are fields whose values are hardly ever seen twice: they would push out of the table what is.
var changes = map[string]bool{"audit-id": true, "content-length": true, "etag": true, "last-modified": true}

func (c *conn) field(name, value string, fleeting bool) {
	_ = c.encoder.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: fleeting}) // to memory
}

// today is the time as headers tell it, made once a second.
var today atomic.Pointer[dated]

type dated struct {
	second int64
	text   string
}

func date() string {
	now := time.Now()
	d := today.Load()
	if d == nil || d.second != now.Unix() {
		d = &dated{now.Unix(), now.UTC().Format(http.TimeFormat)}
		today.Store(d)
	}
	return d.text
}
