package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// direct is a transport that calls a handler in this process. It behaves as HTTP does: the answer is there when the handler has flushed
// or finished, a body may be read while it is written, and ending the request's context or closing the body ends the handler's work. The answer
// to a write is handed over whole.
type direct struct{ handler http.Handler }

// bufferUpTo is how large an answer is handed over whole. A larger one is read while it is written.
const bufferUpTo = 256 << 10

func (d direct) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	e := &exchange{ctx: ctx, cancel: cancel, request: req, header: http.Header{}, answered: make(chan answer, 1)}
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		// A write is answered when it is done, and its answer is short: no other goroutine need be woken for it, whose stack has to grow first.
		e.whole = true
		e.serve(d.handler)
		a := <-e.answered
		return a.response, a.err
	}
	go e.serve(d.handler)
	select {
	case a := <-e.answered:
		return a.response, a.err
	case <-req.Context().Done():
		return nil, req.Context().Err() // the handler sees this too, and ends
	}
}

type answer struct {
	response *http.Response
	err      error
}

// exchange is one request and its answer. It is the handler's http.ResponseWriter.
type exchange struct {
	ctx      context.Context
	cancel   context.CancelFunc
	request  *http.Request
	answered chan answer // gets one answer
	whole    bool        // the answer is handed over when it is finished

	header http.Header
	status int
	sent   http.Header    // what the header was when the status was written
	buf    []byte         // of the body, until the answer is handed over
	stream *io.PipeWriter // of the body, afterwards
}

// errAborted is what a reader gets when a handler gave up in the middle of its answer.
var errAborted = fmt.Errorf("the server aborted its answer: %w", io.ErrUnexpectedEOF)

func (e *exchange) serve(handler http.Handler) {
	defer e.cancel()
	defer func() {
		if p := recover(); p != nil {
			err := errAborted
			if p != http.ErrAbortHandler { //nolint:errorlint // panics carry the value itself
				err = fmt.Errorf("the server panicked: %v", p)
			}
			e.end(err)
		}
	}()
	r := e.request.WithContext(e.ctx)
	r.Header = r.Header.Clone()
	r.RequestURI = r.URL.RequestURI()
	if r.Host == "" {
		r.Host = r.URL.Host
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	defer r.Body.Close()
	handler.ServeHTTP(e, r)
	e.end(nil)
}

// Header is the answer's.
func (e *exchange) Header() http.Header { return e.header }

// WriteHeader begins the answer.
func (e *exchange) WriteHeader(status int) {
	if e.status != 0 || status < 200 {
		return
	}
	e.status = status
	e.sent = e.header.Clone()
	if size, err := strconv.Atoi(e.header.Get("Content-Length")); err == nil && size <= bufferUpTo {
		e.buf = make([]byte, 0, size)
	}
}

// Write adds to the body.
func (e *exchange) Write(p []byte) (int, error) {
	if e.status == 0 {
		e.WriteHeader(http.StatusOK)
	}
	if e.stream == nil && len(e.buf)+len(p) > bufferUpTo && !e.whole {
		e.Flush()
	}
	if e.stream != nil {
		return e.stream.Write(p)
	}
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	e.buf = append(e.buf, p...)
	return len(p), nil
}

// Flush hands the answer over as far as it is there. What is written afterwards is read as it comes.
func (e *exchange) Flush() {
	if e.status == 0 {
		e.WriteHeader(http.StatusOK)
	}
	if e.stream != nil || e.whole {
		return
	}
	reader, writer := io.Pipe()
	e.stream = writer
	body := &streamBody{Reader: reader, pipe: reader, cancel: e.cancel}
	if len(e.buf) > 0 {
		body.Reader = io.MultiReader(bytes.NewReader(e.buf), reader)
		e.buf = nil
	}
	// A reader must not wait for a handler that does not notice the end of its context, nor a handler for a reader that does not read.
	body.stop = context.AfterFunc(e.ctx, func() { writer.CloseWithError(cmp.Or(e.request.Context().Err(), errAborted)) })
	e.answered <- answer{response: e.response(body, -1)}
}

// SetWriteDeadline is how a handler cuts an answer that nobody reads: with a deadline that is over.
func (e *exchange) SetWriteDeadline(deadline time.Time) error {
	if time.Until(deadline) > 0 || deadline.IsZero() {
		return http.ErrNotSupported
	}
	e.cancel()
	return nil
}

// end finishes the answer, whole or not.
func (e *exchange) end(err error) {
	switch {
	case e.stream != nil:
		if err == nil {
			err = e.request.Context().Err() // a body that ends because its reader went is not whole
		}
		e.stream.CloseWithError(err) // nil is the end of the body
	case err != nil:
		e.answered <- answer{err: err}
	default:
		if e.status == 0 {
			e.WriteHeader(http.StatusOK)
		}
		e.answered <- answer{response: e.response(io.NopCloser(bytes.NewReader(e.buf)), int64(len(e.buf)))}
	}
}

func (e *exchange) response(body io.ReadCloser, size int64) *http.Response {
	return &http.Response{
		Status: strconv.Itoa(e.status) + " " + http.StatusText(e.status), StatusCode: e.status,
		Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: e.sent, Body: body, ContentLength: size, Request: e.request,
	}
}

// streamBody is a body that is still being written.
type streamBody struct {
	io.Reader
	pipe   *io.PipeReader
	cancel context.CancelFunc
	stop   func() bool
}

// Close ends the handler's work.
func (b *streamBody) Close() error {
	b.stop()
	b.cancel()
	return b.pipe.CloseWithError(errors.New("http: read on closed response body"))
}
