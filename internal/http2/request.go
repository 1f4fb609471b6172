package http2

import (
	"context"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
)

// handleHeaders begins a request, or ends the body of one with trailers.
func (c *conn) handleHeaders(f *http2.MetaHeadersFrame) error {
	id := f.StreamID
	if id%2 == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.streams[id]; st != nil {
		return st.handleTrailers(f)
	}
	if c.wasReset(id) {
		return nil
	}
	if id <= c.lastID {
		return http2.ConnectionError(http2.ErrCodeStreamClosed)
	}
	c.lastID = id
	if f.HasPriority() && f.Priority.StreamDep == id {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
	}
	if c.draining || c.runningHandlers >= c.opts.MaxStreams {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeRefusedStream}
	}
	r, err := c.newRequest(f)
	if err != nil {
		return err
	}
	handler := c.server.Handler
	if f.Truncated {
		handler = http.HandlerFunc(tooLarge)
	}
	st := &stream{conn: c, id: id, sendWindow: c.initialWindow}
	b := &st.body
	b.st, b.changed.L, b.window, b.declared, b.request = st, &c.mu, streamWindow, r.ContentLength, r
	if f.StreamEnded() {
		if r.ContentLength > 0 {
			return http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
		}
		b.ended, b.err = true, io.EOF
		r.Body, r.ContentLength = http.NoBody, 0
	} else {
		r.Body = b
		if b.expectsContinue = httpguts.HeaderValuesContainsToken(r.Header["Expect"], "100-continue"); b.expectsContinue {
			delete(r.Header, "Expect")
		}
	}
	ctx, cancel := context.WithCancel(c.ctx)
	st.cancel = cancel
	c.streams[id] = st
	c.runningHandlers++
	c.dispatch(handlerCall{st, handler, r.WithContext(ctx)})
	return nil
}

// tooLarge answers a request whose headers are too large.
func tooLarge(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, http.StatusText(http.StatusRequestHeaderFieldsTooLarge), http.StatusRequestHeaderFieldsTooLarge)
}

// newRequest makes a request of its headers. Headers that the protocol forbids are an error of the stream.
func (c *conn) newRequest(f *http2.MetaHeadersFrame) (*http.Request, error) {
	malformed := http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
	r := &http.Request{Proto: "HTTP/2.0", ProtoMajor: 2, RemoteAddr: c.remote, TLS: &c.state, ContentLength: -1,
		Method: f.PseudoValue("method"), Host: f.PseudoValue("authority"), RequestURI: f.PseudoValue("path")}
	scheme := f.PseudoValue("scheme")
	fields := f.RegularFields()
	r.Header = make(http.Header, len(fields)+1)
	values := make([]string, len(fields)) // one allocation for all
	for i, field := range fields {
		name := canonical(field.Name)
		if old := r.Header[name]; old != nil {
			if name == "Cookie" {
				old[0] += "; " + field.Value // clients split cookies for compression
				continue
			}
			r.Header[name] = append(old, field.Value)
			continue
		}
		values[i] = field.Value
		r.Header[name] = values[i : i+1 : i+1]
	}
	if f.Truncated {
		r.URL = &url.URL{Path: "/"}
		return r, nil
	}
	if r.Host == "" {
		r.Host = r.Header.Get("Host")
	}
	delete(r.Header, "Host")
	if hasConnectionHeaders(r.Header) || f.PseudoValue("protocol") != "" {
		return nil, malformed
	}
	if r.Method == http.MethodConnect {
		if r.RequestURI != "" || scheme != "" || r.Host == "" {
			return nil, malformed
		}
		r.URL, r.RequestURI = &url.URL{Host: r.Host}, r.Host
	} else {
		if r.Method == "" || r.RequestURI == "" || scheme != "https" && scheme != "http" {
			return nil, malformed
		}
		var err error
		if r.URL, err = url.ParseRequestURI(r.RequestURI); err != nil {
			return nil, malformed
		}
	}
	if v := r.Header.Get("Content-Length"); v != "" {
		n, err := strconv.ParseUint(v, 10, 63)
		if err != nil || len(r.Header["Content-Length"]) > 1 {
			return nil, malformed
		}
		r.ContentLength = int64(n)
	}
	declareTrailers(r)
	return r, nil
}

// hasConnectionHeaders reports whether headers are about the connection, which HTTP/2 forbids.
func hasConnectionHeaders(h http.Header) bool {
	for _, name := range [...]string{"Connection", "Proxy-Connection", "Transfer-Encoding", "Upgrade", "Keep-Alive"} {
		if _, found := h[name]; found {
			return true
		}
	}
	te := h["Te"]
	return len(te) > 1 || len(te) == 1 && te[0] != "trailers" && te[0] != ""
}

// declareTrailers adds the trailers that the client announces to the request, without values.
func declareTrailers(r *http.Request) {
	for _, list := range r.Header["Trailer"] {
		for _, name := range strings.Split(list, ",") {
			name = canonical(textproto.TrimString(name))
			switch name {
			case "", "Transfer-Encoding", "Trailer", "Content-Length": // not allowed as trailers
			default:
				if r.Trailer == nil {
					r.Trailer = http.Header{}
				}
				r.Trailer[name] = nil
			}
		}
	}
	delete(r.Header, "Trailer")
}

// handleTrailers handles the header block after a body, which ends it.
func (st *stream) handleTrailers(f *http2.MetaHeadersFrame) error {
	b := &st.body
	if b.ended {
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeStreamClosed}
	}
	if !f.StreamEnded() || len(f.PseudoFields()) > 0 || b.declared >= 0 && b.received != b.declared {
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeProtocol}
	}
	for _, field := range f.RegularFields() {
		name := canonical(field.Name)
		if _, declared := b.request.Trailer[name]; declared {
			b.request.Trailer[name] = append(b.request.Trailer[name], field.Value)
		}
	}
	b.end(io.EOF)
	return nil
}
