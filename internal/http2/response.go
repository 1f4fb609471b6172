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

// bufferSize is how much of a response is buffered before it is queued; a larger write is queued at once.
const bufferSize = 4 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, bufferSize); return &b }}

// response is the http.ResponseWriter of a handler. Handlers use it from one goroutine at a time, except for deadlines.
type response struct {
	st       *stream
	request  *http.Request
	header   http.Header
	status   int
	fields   []hpack.HeaderField // the header as it was when WriteHeader was called
	declared int64               // the Content-Length, or -1
	written  int64
	buffer   *[]byte
	trailers []string

	headerQueued bool
	handlerDone  bool // the handler has returned
	closeConn    bool // the handler has set "Connection: close"
}

// Header returns the header of the response, to which trailers are added later.
func (w *response) Header() http.Header { return w.header }

// WriteHeader sets the status and fixes the header of the response.
func (w *response) WriteHeader(code int) {
	if w.status != 0 {
		return
	}
	if code < 100 || code > 999 {
		panic("http2: invalid status " + strconv.Itoa(code))
	}
	if code < 200 && code != http.StatusSwitchingProtocols {
		w.writeInformational(code)
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
	w.closeConn = httpguts.HeaderValuesContainsToken(w.header["Connection"], "close")
	for _, list := range w.header["Trailer"] {
		for _, name := range strings.Split(list, ",") {
			w.trailers = append(w.trailers, canonical(textproto.TrimString(name)))
		}
	}
	w.fields = fieldsOf(w.header, w.trailers, make([]hpack.HeaderField, 0, len(w.header)+3))
}

// writeInformational sends a header with a 1xx status, before that of the response.
func (w *response) writeInformational(code int) {
	c := w.st.conn
	fields := fieldsOf(w.header, nil, nil)
	c.mu.Lock()
	_ = w.st.headers(func() { c.fields(code, fields) }, false)
	c.write()
}

// hasBody reports whether the response may have a body.
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

// WriteAll adds several slices to the body, as one Write of them all. It neither changes nor keeps them.
func (w *response) WriteAll(all [][]byte) error { return w.add(piecesOf(all)) }

// add buffers a small part of the body, and queues a larger one.
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
	if w.headerQueued && !w.hasBody() {
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
		w.st.notifyWaiter() // writing waits if the client does not read
		c.write()
	} else {
		c.mu.Unlock()
	}
	return err
}

// send queues the buffer and p, after the header if that was not queued yet.
func (w *response) send(p pieces, end bool) error {
	var buffered []byte
	if w.buffer != nil {
		buffered = *w.buffer
	}
	if !w.headerQueued {
		w.headerQueued = true
		w.complete(buffered, p)
		headerOnly := end && len(buffered) == 0 && p.bytes == 0 || !w.hasBody()
		if err := w.st.headers(func() { w.st.conn.fields(w.status, w.fields) }, headerOnly); err != nil || headerOnly {
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

// complete adds the header fields that net/http adds too: content type, content length and date.
func (w *response) complete(buffered []byte, p pieces) {
	size := len(buffered) + p.bytes
	if _, hasType := w.header["Content-Type"]; !hasType && size > 0 && w.header.Get("Content-Encoding") == "" {
		first := buffered
		if len(first) == 0 {
			first = p.next(size)
		}
		w.fields = append(w.fields, hpack.HeaderField{Name: "content-type", Value: http.DetectContentType(first)})
	}
	if w.handlerDone && w.declared < 0 && bodyAllowed(w.status) && (w.hasBody() || len(buffered) > 0) {
		w.fields = append(w.fields, hpack.HeaderField{Name: "content-length", Value: strconv.Itoa(size)})
	}
	if _, hasDate := w.header["Date"]; !hasDate {
		w.fields = append(w.fields, hpack.HeaderField{Name: "date", Value: date()})
	}
}

// Flush sends what was written so far.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError sends what was written so far, and returns an error if that fails.
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

// SetWriteDeadline has writes fail from a time on.
func (w *response) SetWriteDeadline(at time.Time) error {
	w.st.setWriteDeadline(at)
	return nil
}

// SetReadDeadline has reads of the request's body fail from a time on.
func (w *response) SetReadDeadline(at time.Time) error {
	w.st.body.setReadDeadline(at)
	return nil
}

// LimitWaits bounds how long the handler waits for its client, to read the body or to write the response: for the time stall without progress, and never past the
// deadline. After that reads and writes fail, and the client sees RST_STREAM. A zero limit is none. waiter, if not nil, is told of each wait before it begins, with
// the connection locked: it must not use the request. Unlike deadlines, limits cost nothing while the handler does not wait. The first call must come before the
// handler reads, writes or starts a goroutine that does.
func (w *response) LimitWaits(stall time.Duration, deadline time.Time, waiter Waiter) {
	w.st.limitWaits(stall, deadline, waiter)
}

// EnableFullDuplex does nothing: with HTTP/2 the body may always be read while the response is written.
func (w *response) EnableFullDuplex() error { return nil }

// finish queues the rest of the response. The caller sends it.
func (w *response) finish() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	c := w.st.conn
	trailers := w.trailer()
	w.handlerDone = true
	c.mu.Lock()
	defer c.mu.Unlock()
	w.st.handlerDone, w.st.waiter = true, nil
	if err := w.send(pieces{}, len(trailers) == 0); err != nil || len(trailers) == 0 {
		return err
	}
	return w.st.headers(func() { c.fields(0, trailers) }, true)
}

// trailer returns the trailers that the handler has set: announced ones, and those with http.TrailerPrefix.
func (w *response) trailer() []hpack.HeaderField {
	trailer := http.Header{}
	for _, name := range w.trailers {
		if v := w.header[name]; v != nil {
			trailer[name] = v
		}
	}
	for name, v := range w.header {
		if rest, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			trailer[canonical(rest)] = v
		}
	}
	if len(trailer) == 0 {
		return nil
	}
	return fieldsOf(trailer, nil, nil)
}

// free returns the buffer to its pool.
func (w *response) free() {
	if w.buffer != nil {
		*w.buffer = (*w.buffer)[:0]
		buffers.Put(w.buffer)
		w.buffer = nil
	}
}

// fieldsOf appends the fields of a header, except trailers and those that HTTP/2 does not send.
func fieldsOf(h http.Header, trailers []string, fields []hpack.HeaderField) []hpack.HeaderField {
	for name, values := range h {
		lower, ok := wireName(name)
		if !ok || strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		if len(trailers) > 0 && contains(trailers, name) {
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

// fields encodes a header into c.block.
func (c *conn) fields(status int, fields []hpack.HeaderField) {
	switch status {
	case 0:
	case http.StatusOK:
		c.field(":status", "200", false)
	default:
		c.field(":status", strconv.Itoa(status), false)
	}
	for _, f := range fields {
		c.field(f.Name, f.Value, volatileFields[f.Name])
	}
}

// volatileFields are header fields whose values hardly ever repeat: in the header table they would displace those that do.
var volatileFields = map[string]bool{"audit-id": true, "content-length": true, "etag": true, "last-modified": true}

// field encodes one header field; volatile ones are kept out of the header table.
func (c *conn) field(name, value string, volatile bool) {
	_ = c.encoder.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: volatile}) // writing to memory does not fail
}

// currentDate is the value of the Date header, formatted once a second.
var currentDate atomic.Pointer[formattedDate]

type formattedDate struct {
	second int64
	text   string
}

// date returns the value of the Date header.
func date() string {
	now := time.Now()
	d := currentDate.Load()
	if d == nil || d.second != now.Unix() {
		d = &formattedDate{now.Unix(), now.UTC().Format(http.TimeFormat)}
		currentDate.Store(d)
	}
	return d.text
}
