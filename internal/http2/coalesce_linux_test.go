package http2

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// recordingListener passes the connections that it accepts to conns.
type recordingListener struct {
	net.Listener
	conns chan *net.TCPConn
}

func (l recordingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.conns <- c.(*net.TCPConn)
	}
	return c, err
}

// coalescingServer serves one raw client with an initial window, and returns both ends. The handler of "/" returns when its request is cancelled, and then sends
// to cancelled.
func coalescingServer(t *testing.T, window uint32, opts Options) (c *raw, socket *net.TCPConn, cancelled chan struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	recorder := recordingListener{listener, make(chan *net.TCPConn, 1)}
	cancelled = make(chan struct{}, 100)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("short") != "" {
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		cancelled <- struct{}{}
	})
	server := &http.Server{Handler: handler, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}}, ErrorLog: log.New(io.Discard, "", 0)}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := Serve(server, recorder, opts); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server ended: %v", err)
		}
	})
	t.Cleanup(func() {
		server.Close()
		serving.Wait()
	})
	c = dialRaw(t, listener.Addr().String())
	if err := c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
		t.Fatal(err)
	}
	c.request(1, true)
	if err := c.until(func(f http2.Frame) bool { return f.Header().Type == http2.FrameHeaders }); err != nil {
		t.Fatal(err)
	}
	return c, <-recorder.conns, cancelled
}

// lowWaterMark returns how many bytes wake the server's reader.
func lowWaterMark(t *testing.T, socket *net.TCPConn) (n int) {
	t.Helper()
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		n, failed = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT)
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return n
}

// sendWindowUpdates sends WINDOW_UPDATE frames until the server coalesces them, or until it is clear that it never will.
func (c *raw) sendWindowUpdates(socket *net.TCPConn) (coalesced bool) {
	for range 400 {
		if err := c.WriteWindowUpdate(1, 1); err != nil {
			c.t.Fatal(err)
		}
		time.Sleep(100 * time.Microsecond)
		if lowWaterMark(c.t, socket) > 1 {
			return true
		}
	}
	return false
}

// TestCoalesceWindowUpdates: a reader that finds nothing but WINDOW_UPDATE frames coalesces them for a moment. Neither a request nor the end of the connection
// waits for longer.
func TestCoalesceWindowUpdates(t *testing.T) {
	c, socket, cancelled := coalescingServer(t, 4<<20, Options{})
	for i := range uint32(20) {
		if !c.sendWindowUpdates(socket) {
			t.Fatal("the reader does not coalesce")
		}
		began := time.Now()
		id := 3 + 2*i
		c.request(id, true, "short", "yes")
		if err := c.until(func(f http2.Frame) bool { return f.Header().StreamID == id }); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("a request took %v", took)
		}
	}
	if !c.sendWindowUpdates(socket) {
		t.Fatal("the reader does not coalesce")
	}
	for began := time.Now(); lowWaterMark(t, socket) != 1; time.Sleep(time.Millisecond) {
		if time.Since(began) > 5*time.Second {
			t.Fatal("the low-water mark is not reset")
		}
	}
	if !c.sendWindowUpdates(socket) {
		t.Fatal("the reader does not coalesce")
	}
	c.conn.Close()
	select {
	case <-cancelled:
	case <-time.After(5 * time.Second):
		t.Error("the end of the connection is not noticed")
	}
}

// TestCoalesceNarrowWindows: WINDOW_UPDATE frames of a client with a small window are not coalesced, as a handler may wait for them.
func TestCoalesceNarrowWindows(t *testing.T) {
	c, socket, _ := coalescingServer(t, 64<<10, Options{})
	if c.sendWindowUpdates(socket) {
		t.Error("the reader coalesces")
	}
}

// TestCoalesceLargeResponses: large responses arrive whole at clients whose windows close.
func TestCoalesceLargeResponses(t *testing.T) {
	body := make([]byte, 20<<20)
	for i := range body {
		body[i] = byte(i * i >> 8)
	}
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }), Options{})
	shared := client(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			r, err := http.NewRequestWithContext(ctx, "GET", "https://"+address, nil)
			if err != nil {
				t.Error(err)
				return
			}
			answer, err := shared.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			got, err := io.ReadAll(answer.Body)
			if err != nil || string(got) != string(body) {
				t.Errorf("%d bytes of %d, %v", len(got), len(body), err)
			}
		})
	}
	wg.Wait()
}

// sendRequests sends requests without waiting for each, and reads all responses.
func (c *raw) sendRequests(first uint32, n int) (next uint32) {
	c.t.Helper()
	for i := range uint32(n) {
		c.request(first+2*i, true, "short", "yes")
	}
	for answered := 0; answered < n; {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatal(err)
		}
		if f.Header().StreamID >= first && f.Header().Flags.Has(http2.FlagDataEndStream) {
			answered++
		}
	}
	return first + 2*uint32(n)
}

// TestCoalesceBursts: bursts of requests are coalesced for a moment; requests that come one by one are not, however fast.
func TestCoalesceBursts(t *testing.T) {
	c, socket, _ := coalescingServer(t, 4<<20, Options{})
	next := uint32(3)
	for range 500 {
		next = c.sendRequests(next, 1)
		if n := lowWaterMark(t, socket); n > 1 {
			t.Fatalf("after single requests the reader is woken for %d bytes", n)
		}
	}
	coalesced := false
	for range 500 {
		if next = c.sendRequests(next, 60); lowWaterMark(t, socket) > 1 {
			coalesced = true
			break
		}
	}
	if !coalesced {
		t.Error("the reader does not coalesce")
	}
	for range 200 {
		began := time.Now()
		next = c.sendRequests(next, 1)
		if took := time.Since(began); took > time.Second {
			t.Errorf("a request took %v", took)
		}
	}
	if n := lowWaterMark(t, socket); n != 1 {
		t.Errorf("after single requests the reader is woken for %d bytes", n)
	}
}

func TestBurstDetector(t *testing.T) {
	var d burstDetector
	now := time.Now()
	// wakes makes burstWakes wake-ups that are all alike, and reports whether the next requests are coalesced.
	wakes := func(requests int, every time.Duration, late bool) (wait bool) {
		for range burstWakes {
			now = now.Add(every)
			wait = d.observe(now, requests, late)
		}
		return wait
	}
	const soon = 100 * time.Microsecond
	check := func(what string, got, want bool) {
		t.Helper()
		if got != want {
			t.Errorf("%s: coalescing is %v", what, got)
		}
	}
	check("one at a time", wakes(1, soon, false), false)
	check("two at a time, but seldom", wakes(2, 5*time.Millisecond, false), false)
	check("two at a time", wakes(2, soon, false), true)
	check("many once waited for", wakes(12, time.Millisecond, false), true)
	check("few though waited for", wakes(5, soon, false), false)
	check("two at a time, soon after that", wakes(2, minPause/burstWakes/2, false), false)
	now = now.Add(minPause)
	check("two at a time, a while after that", wakes(2, soon, false), true)
	check("many, but late", wakes(12, soon, true), false)
	now = now.Add(minPause + soon)
	check("two at a time, when it was in vain twice", wakes(2, soon, false), false)
	now = now.Add(minPause)
	check("two at a time, after as long again", wakes(2, soon, false), true)
	check("many", wakes(12, soon, false), true)
	check("few", wakes(5, soon, false), false)
	now = now.Add(minPause)
	check("two at a time, a while after waiting was worth it", wakes(2, soon, false), true)
	for range 20 {
		wakes(5, soon, false)
		now = now.Add(maxPause)
		check("two at a time, in vain many times", wakes(2, soon, false), true)
	}
}
