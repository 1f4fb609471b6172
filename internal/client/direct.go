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

// directTransport is a transport that calls a handler in this process. It behaves as HTTP does: the response is returned when the handler has flushed
// or finished, a body may be read while it is written, and ending the request's context or closing the body cancels the handler. The response
// to a write is returned when it is complete.
type directTransport struct{ handler http.Handler }

// maxBuffered is the size up to which a response is returned when it is complete. A larger one is read while it is written.
const maxBuffered = 256 << 10

func (d directTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	e := &exchange{ctx: ctx, cancel: cancel, request: req, header: http.Header{}, answered: make(chan answer, 1)}
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		// The response to a write comes when it is done, and is short: serving it here saves waking another goroutine, whose stack has to grow first.
		e.buffered = true
		e.serve(d.handler)
		a := <-e.answered
		return a.response, a.err
	}
	go e.serve(d.handler)
	select {
	case a := <-e.answered:
		return a.response, a.err
	case <-req.Context().Done():
		return nil, req.Context().Err() // the handler's context ends too
	}
}

type answer struct {
	response *http.Response
	err      error
}

// exchange is one request and its response. It is the handler's http.ResponseWriter.
type exchange struct {
	ctx      context.Context
	cancel   context.CancelFunc
	request  *http.Request
	answered chan answer // receives one answer
	buffered bool        // whether the response is returned only when it is complete

	header http.Header
	status int
	sent   http.Header    // a copy of header when the status was written
	buf    []byte         // the body until the response is returned
	stream *io.PipeWriter // the body after the response was returned
}

// errAborted is the error of reading a response whose handler aborted it.
var errAborted = fmt.Errorf("the server aborted its response: %w", io.ErrUnexpectedEOF)

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

// Header implements http.ResponseWriter.
func (e *exchange) Header() http.Header { return e.header }

// WriteHeader implements http.ResponseWriter.
func (e *exchange) WriteHeader(status int) {
	if e.status != 0 || status < 200 {
		return
	}
	e.status = status
	e.sent = e.header.Clone()
	if size, err := strconv.Atoi(e.header.Get("Content-Length")); err == nil && size <= maxBuffered {
		e.buf = make([]byte, 0, size)
	}
}

// Write implements http.ResponseWriter.
func (e *exchange) Write(p []byte) (int, error) {
	if e.status == 0 {
		e.WriteHeader(http.StatusOK)
	}
	if e.stream == nil && len(e.buf)+len(p) > maxBuffered && !e.buffered {
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

// Flush returns the response with the body written so far; what is written afterwards is read as it is written. It does nothing for a write's response.
func (e *exchange) Flush() {
	if e.status == 0 {
		e.WriteHeader(http.StatusOK)
	}
	if e.stream != nil || e.buffered {
		return
	}
	reader, writer := io.Pipe()
	e.stream = writer
	body := &streamBody{Reader: reader, pipe: reader, cancel: e.cancel}
	if len(e.buf) > 0 {
		body.Reader = io.MultiReader(bytes.NewReader(e.buf), reader)
		e.buf = nil
	}
	// A reader must not wait for a handler that ignores the end of its context, nor a handler for a reader that does not read.
	body.stop = context.AfterFunc(e.ctx, func() { writer.CloseWithError(cmp.Or(e.request.Context().Err(), errAborted)) })
	e.answered <- answer{response: e.response(body, -1)}
}

// SetWriteDeadline cancels the response if the deadline has passed, which is how a handler ends a response that nobody reads. It does not support
// other deadlines.
func (e *exchange) SetWriteDeadline(deadline time.Time) error {
	if time.Until(deadline) > 0 || deadline.IsZero() {
		return http.ErrNotSupported
	}
	e.cancel()
	return nil
}

// end finishes the response, with an error if it is incomplete.
func (e *exchange) end(err error) {
	switch {
	case e.stream != nil:
		if err == nil {
			err = e.request.Context().Err() // a body is incomplete if its reader has gone
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

// Close cancels the handler.
func (b *streamBody) Close() error {
	b.stop()
	b.cancel()
	return b.pipe.CloseWithError(errors.New("http: read on closed response body"))
}
