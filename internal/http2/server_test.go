package http2

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// handlers are served by net/http's server and by this one, with the same result.
var handlers = map[string]http.HandlerFunc{
	"nothing": func(http.ResponseWriter, *http.Request) {},
	"small":   func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") },
	"typed": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "a/b")
		io.WriteString(w, "hello")
	},
	"html": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
	"status": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "tea")
	},
	"no content": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	"unmodified": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Etag", `"x"`)
		w.WriteHeader(http.StatusNotModified)
	},
	"declared": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "3")
		io.WriteString(w, "abc")
	},
	"too little": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "3")
		io.WriteString(w, "ab")
	},
	"late header": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(200)
		w.Header().Set("X-Late", "1")
		io.WriteString(w, "x")
	},
	"several values": func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Many"] = []string{"1", "2", "3"}
		w.Header()["Warning"] = []string{`299 - "a"`, `299 - "b"`}
	},
	"bad value": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Bad", "a\nb")
		w.Header().Set("Connection", "keep-alive")
	},
	"flushed": func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "a")
		w.(http.Flusher).Flush()
		io.WriteString(w, "b")
	},
	"large": func(w http.ResponseWriter, _ *http.Request) { w.Write(bytes.Repeat([]byte("0123456789"), 300_000)) },
	"pieces": func(w http.ResponseWriter, _ *http.Request) {
		for i := range 5000 {
			fmt.Fprintf(w, "%d\n", i)
		}
	},
	"together": func(w http.ResponseWriter, _ *http.Request) {
		writeTogether(w, "", "<html>", "", strings.Repeat("0123456789", 300_000), "the end")
	},
	"together, one after the other": func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "before")
		for i := range 300 {
			writeTogether(w, strings.Repeat("a", i), strings.Repeat("b", 17*i), "c")
		}
		io.WriteString(w, "after")
	},
	"together, flushed": func(w http.ResponseWriter, _ *http.Request) {
		writeTogether(w, "a", "b")
		w.(http.Flusher).Flush()
		writeTogether(w, "c", "d")
	},
	"together, small":   func(w http.ResponseWriter, _ *http.Request) { writeTogether(w, "a", "", "b") },
	"together, nothing": func(w http.ResponseWriter, _ *http.Request) { writeTogether(w, "", "") },
	"together, declared": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "4")
		writeTogether(w, "ab", "cd")
	},
	"together, no content": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		writeTogether(w, "ab", "cd")
	},
	"trailers": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-After, X-Never")
		io.WriteString(w, "body")
		w.Header().Set("X-After", "1")
		w.Header().Set(http.TrailerPrefix+"X-Unannounced", "2")
	},
	"early hints": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		io.WriteString(w, "x")
	},
	"panic": func(http.ResponseWriter, *http.Request) { panic("on purpose") },
	"late panic": func(w http.ResponseWriter, _ *http.Request) {
		w.Write(make([]byte, 100_000))
		panic(http.ErrAbortHandler)
	},
	"echo":        func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) },
	"ignore body": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestEntityTooLarge) },
	"request": func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintln(w, r.Method, r.URL, r.RequestURI, r.Proto, r.ContentLength, r.Header, r.Trailer, len(body), err, r.TLS.NegotiatedProtocol, r.RemoteAddr != "",
			r.Context().Value(http.LocalAddrContextKey) != nil, r.Context().Err())
	},
	"read after close": func(w http.ResponseWriter, r *http.Request) {
		r.Body.Close()
		_, err := r.Body.Read(make([]byte, 1))
		fmt.Fprint(w, err != nil)
	},
}

// writeTogether writes pieces with WriteAll, or with one Write where the server has no WriteAll.
func writeTogether(w http.ResponseWriter, pieces ...string) {
	if to, ok := w.(interface{ WriteAll([][]byte) error }); ok {
		all := make([][]byte, len(pieces))
		for i, piece := range pieces {
			all[i] = []byte(piece)
		}
		_ = to.WriteAll(all)
		return
	}
	io.WriteString(w, strings.Join(pieces, ""))
}

// exchange returns all that a client sees of a response, as text.
func exchange(c *http.Client, url, method string, body []byte) string {
	var hints []string
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		hints = append(hints, fmt.Sprint(code, h))
		return nil
	}})
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, url+"/a%20b/c?d=e", reader)
	if err != nil {
		return err.Error()
	}
	r.Header["X-Several"] = []string{"a", "b"}
	r.Header["Cookie"] = []string{"a=b; c=d"}
	if len(body) == 7 {
		r.Header.Set("Expect", "100-continue")
		r.Trailer = http.Header{"X-End": {"now"}}
		r.ContentLength = -1
	}
	answer, err := c.Do(r)
	if err != nil {
		return "failed: " + lastPart(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	answer.Header.Del("Date")
	sum := string(got)
	if len(sum) > 1000 {
		sum = fmt.Sprintf("%d bytes ending in %q", len(got), got[len(got)-10:])
	}
	return fmt.Sprint(answer.Status, answer.Proto, answer.ContentLength, answer.Header, answer.Trailer, sum, hints, lastPart(err))
}

// lastPart returns the part of an error that does not differ between requests.
func lastPart(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	for _, known := range []string{"INTERNAL_ERROR", "unexpected EOF", "NO_ERROR"} {
		if strings.Contains(text, known) {
			return known
		}
	}
	return text
}

// TestLikeNetHTTP: clients see the same of this server as of net/http's.
func TestLikeNetHTTP(t *testing.T) {
	mux := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handlers[r.Header.Get("X-Handler")](w, r) })
	theirs := httptest.NewUnstartedServer(mux)
	theirs.EnableHTTP2 = true
	theirs.Config.ErrorLog = log.New(io.Discard, "", 0)
	theirs.StartTLS()
	defer theirs.Close()
	ours := "https://" + serve(t, mux, Options{})
	for name := range handlers {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT"} {
			bodies := [][]byte{nil}
			if method[0] == 'P' {
				bodies = [][]byte{nil, {}, []byte("waiting"), []byte("short body"), bytes.Repeat([]byte("x"), 20_000), bytes.Repeat([]byte("long"), 800_000)}
			}
			for _, body := range bodies {
				if name == "ignore body" && len(body) > 1000 {
					continue // how much the client has sent by then is chance
				}
				ask := func(url string) string {
					c := client(t)
					c.Transport = handlerTransport{c.Transport, name}
					return exchange(c, url, method, body)
				}
				if want, got := ask(theirs.URL), ask(ours); got != want {
					t.Errorf("%s, %s with %d bytes:\n got %s\nwant %s", name, method, len(body), got, want)
				}
			}
		}
	}
}

// handlerTransport sets the header that names the handler.
type handlerTransport struct {
	http.RoundTripper
	name string
}

func (n handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("X-Handler", n.name)
	return n.RoundTripper.RoundTrip(r)
}

// TestManyAtOnce: many requests of all sizes share few connections, and each gets its own response.
func TestManyAtOnce(t *testing.T) {
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Size", strconv.FormatInt(r.ContentLength, 10))
		io.Copy(w, r.Body)
	}), Options{MaxStreams: 20})
	c := client(t)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for range 25 {
				size := random.IntN(1 << random.IntN(21))
				sent := bytes.Repeat([]byte{byte(i)}, size)
				answer, err := c.Post("https://"+address, "x/y", bytes.NewReader(sent))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(answer.Body)
				if err != nil || !bytes.Equal(got, sent) || answer.Header.Get("X-Size") != strconv.Itoa(size) {
					t.Errorf("sent %d, got %d (%v), header %v", size, len(got), err, answer.Header)
				}
			}
		})
	}
	wg.Wait()
}

// TestUnreadStream: a client that does not read a stream blocks only that stream; its handler sees deadlines and the cancelled request.
func TestUnreadStream(t *testing.T) {
	gaveUp, gone := make(chan error, 1), make(chan error, 1)
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/deadline":
			time.AfterFunc(50*time.Millisecond, func() { http.NewResponseController(w).SetWriteDeadline(time.Now()) })
			var err error
			for err == nil {
				_, err = w.Write(make([]byte, 100_000))
			}
			gaveUp <- err
		case "/cancel":
			w.Write(make([]byte, 10))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			_, err := w.Write(make([]byte, 100_000))
			gone <- err
		}
	}), Options{})
	c := client(t)
	stuck, err := c.Get("https://" + address + "/deadline")
	if err != nil {
		t.Fatal(err)
	}
	if err := <-gaveUp; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, stuck.Body); err == nil || !strings.Contains(err.Error(), "INTERNAL_ERROR") {
		t.Errorf("half a response looked whole: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r, _ := http.NewRequestWithContext(ctx, "GET", "https://"+address+"/cancel", nil)
	if _, err := c.Do(r); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-gone; err == nil {
		t.Error("wrote to a client that is gone")
	}
	if answer, err := c.Get("https://" + address + "/"); err != nil || answer.StatusCode != 200 {
		t.Errorf("the connection was closed: %v %v", answer, err)
	}
}

func TestReadDeadline(t *testing.T) {
	result := make(chan error, 1)
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, err := io.ReadAll(r.Body)
		result <- err
	}), Options{})
	reader, writer := io.Pipe()
	defer writer.Close()
	answer, err := client(t).Post("https://"+address, "x/y", reader)
	if err != nil || answer.StatusCode != 200 {
		t.Error(answer, err)
	}
	if err := <-result; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

// TestShutdown: requests in flight finish when the server shuts down, and their connections are closed.
func TestShutdown(t *testing.T) {
	arrived, finish := make(chan struct{}), make(chan struct{})
	server, address := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-finish
		io.WriteString(w, "done")
	}), Options{})
	got := make(chan string)
	go func() {
		answer, err := client(t).Get("https://" + address)
		if err != nil {
			got <- err.Error()
			return
		}
		body, err := io.ReadAll(answer.Body)
		got <- fmt.Sprint(string(body), err)
	}()
	<-arrived
	down := make(chan error)
	go func() { down <- server.Shutdown(context.Background()) }()
	select {
	case err := <-down:
		t.Errorf("shut down with a request in flight: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(finish)
	if s := <-got; s != "done<nil>" {
		t.Error(s)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// raw is a client that writes frames by itself.
type raw struct {
	*http2.Framer
	t    *testing.T
	conn net.Conn
	enc  *hpack.Encoder
	buf  bytes.Buffer
	path string // of requests; "/" if empty
}

func dialRaw(t *testing.T, address string) *raw {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(conn, http2.ClientPreface)
	c := &raw{Framer: http2.NewFramer(conn, conn), t: t, conn: conn}
	c.enc = hpack.NewEncoder(&c.buf)
	c.WriteSettings()
	return c
}

func (c *raw) request(id uint32, end bool, more ...string) {
	c.buf.Reset()
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", cmp.Or(c.path, "/")}} {
		c.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	for i := 0; i < len(more); i += 2 {
		c.enc.WriteField(hpack.HeaderField{Name: more[i], Value: more[i+1]})
	}
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.buf.Bytes(), EndStream: end, EndHeaders: true})
}

// until reads frames until found returns true.
func (c *raw) until(found func(http2.Frame) bool) error {
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return err
		}
		if found(f) {
			return nil
		}
	}
}

// TestMaxStreams: a client may not have more handlers running than MaxStreams, also not by resetting requests.
func TestMaxStreams(t *testing.T) {
	var running, most atomic.Int32
	release := make(chan struct{})
	address := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		<-release
	}), Options{MaxStreams: 3})
	defer close(release)
	c := dialRaw(t, address)
	for i := range uint32(200) {
		c.request(2*i+1, true)
		c.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
	}
	if err := c.until(func(f http2.Frame) bool {
		r, ok := f.(*http2.RSTStreamFrame)
		return ok && r.ErrCode == http2.ErrCodeRefusedStream && r.StreamID == 399
	}); err != nil {
		t.Error(err)
	}
	if most.Load() > 3 {
		t.Errorf("%d handlers at a time", most.Load())
	}
}

// TestFlood: a client that causes control frames and reads none is disconnected, whatever the frames are.
func TestFlood(t *testing.T) {
	for name, ask := range map[string]func(c *raw, i uint32) error{
		"ping":     func(c *raw, _ uint32) error { return c.WritePing(false, [8]byte{}) },
		"settings": func(c *raw, _ uint32) error { return c.WriteSettings() },
		"requests": func(c *raw, i uint32) error { c.request(2*i+1, false, "connection", "x"); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			address := serve(t, http.NotFoundHandler(), Options{WriteTimeout: time.Second})
			c := dialRaw(t, address)
			c.conn.SetDeadline(time.Now().Add(10 * time.Second))
			for i := range uint32(3_000_000) {
				if err := ask(c, i); err != nil {
					var timeout net.Error
					if errors.As(err, &timeout) && timeout.Timeout() {
						t.Error("the server neither read nor closed the connection")
					}
					return
				}
				if name == "requests" && i > 200_000 {
					return // nothing is kept of them, and nothing breaks
				}
			}
			t.Error("the server went on for ever")
		})
	}
}

func TestIdleTimeout(t *testing.T) {
	address := serve(t, http.NotFoundHandler(), Options{IdleTimeout: 50 * time.Millisecond})
	c := dialRaw(t, address)
	c.request(1, true)
	began := time.Now()
	if err := c.until(func(f http2.Frame) bool { _, ok := f.(*http2.GoAwayFrame); return ok }); err != nil {
		t.Error(err)
	}
	if err := c.until(func(http2.Frame) bool { return false }); !errors.Is(err, io.EOF) || time.Since(began) < 50*time.Millisecond {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

func TestTooLargeHeader(t *testing.T) {
	address := serve(t, http.NotFoundHandler(), Options{MaxHeaderBytes: 4 << 10})
	c := client(t)
	r, _ := http.NewRequest("GET", "https://"+address, nil)
	r.Header.Set("X-Large", strings.Repeat("x", 3<<10))
	if answer, err := c.Do(r); err != nil || answer.StatusCode != http.StatusNotFound {
		t.Error(answer, err)
	}
	raw := dialRaw(t, address)
	raw.request(1, true, "x-large", strings.Repeat("x", 3<<10), "x-larger", strings.Repeat("y", 3<<10))
	raw.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := raw.until(func(f http2.Frame) bool {
		h, ok := f.(*http2.MetaHeadersFrame)
		return ok && h.PseudoValue("status") == "431"
	}); err != nil {
		t.Error(err)
	}
}

// TestConnectionClose: the response of a handler that sets "Connection: close" arrives, and the next request has a new connection.
func TestConnectionClose(t *testing.T) {
	var connections atomic.Int32
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		io.WriteString(w, "x")
	}), Options{})
	c := client(t)
	for range 3 {
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			if !i.Reused {
				connections.Add(1)
			}
		}})
		r, _ := http.NewRequestWithContext(ctx, "GET", "https://"+address, nil)
		answer, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "x" {
			t.Error(body, err)
		}
		time.Sleep(20 * time.Millisecond) // the client has to see it
	}
	if connections.Load() != 3 {
		t.Errorf("%d connections", connections.Load())
	}
}
