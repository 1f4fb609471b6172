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

// overheard hands over the connections that it accepts.
type overheard struct {
	net.Listener
	conns chan *net.TCPConn
}

func (o overheard) Accept() (net.Conn, error) {
	c, err := o.Listener.Accept()
	if err == nil {
		o.conns <- c.(*net.TCPConn)
	}
	return c, err
}

// lazyServer serves one raw client with a window, and returns both ends. The handler of "/" goes on until its client is gone, and says so.
func lazyServer(t *testing.T, window uint32) (c *raw, socket *net.TCPConn, gone chan struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	heard := overheard{listener, make(chan *net.TCPConn, 1)}
	gone = make(chan struct{}, 100)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("short") != "" {
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	})
	server := &http.Server{Handler: handler, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}}, ErrorLog: log.New(io.Discard, "", 0)}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := Serve(server, heard, Options{}); !errors.Is(err, http.ErrServerClosed) {
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
	return c, <-heard.conns, gone
}

// wanted is for how many bytes the server's reader is woken.
func wanted(t *testing.T, socket *net.TCPConn) (n int) {
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

// tellOf writes news of windows, one by one, until the server's reader is left alone or it is clear that it never will be.
func (c *raw) tellOf(socket *net.TCPConn) (lazy bool) {
	for range 400 {
		if err := c.WriteWindowUpdate(1, 1); err != nil {
			c.t.Fatal(err)
		}
		time.Sleep(100 * time.Microsecond)
		if wanted(c.t, socket) > 1 {
			return true
		}
	}
	return false
}

// A reader that hears nothing but of windows is left alone, for a moment. A request does not wait longer than that, and neither does the end.
func TestLazyReader(t *testing.T) {
	c, socket, gone := lazyServer(t, 4<<20)
	for i := range uint32(20) {
		if !c.tellOf(socket) {
			t.Fatal("the reader is woken for each")
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
	if !c.tellOf(socket) {
		t.Fatal("the reader is woken for each")
	}
	for began := time.Now(); wanted(t, socket) != 1; time.Sleep(time.Millisecond) {
		if time.Since(began) > 5*time.Second {
			t.Fatal("the reader is left alone for longer than a moment")
		}
	}
	if !c.tellOf(socket) {
		t.Fatal("the reader is woken for each")
	}
	c.conn.Close()
	select {
	case <-gone:
	case <-time.After(5 * time.Second):
		t.Error("the end of the connection is not noticed")
	}
}

// Where windows are narrow, a sender may be waiting to hear of them.
func TestLazyReaderWithNarrowWindows(t *testing.T) {
	c, socket, _ := lazyServer(t, 64<<10)
	if c.tellOf(socket) {
		t.Error("the reader is left alone")
	}
}

// Large answers arrive whole, and no slower, at clients whose windows close.
func TestLazyReaderWithLargeAnswers(t *testing.T) {
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

// ask sends requests one behind the other and reads their answers.
func (c *raw) ask(first uint32, n int) (next uint32) {
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

// Requests that come many at a time are waited for, for a moment. Those that come one by one are not, however fast.
func TestLazyReaderWithCrowds(t *testing.T) {
	c, socket, _ := lazyServer(t, 4<<20)
	next := uint32(3)
	for range 500 {
		next = c.ask(next, 1)
		if n := wanted(t, socket); n > 1 {
			t.Fatalf("after single requests the reader is woken for %d bytes", n)
		}
	}
	crowded := false
	for range 500 {
		if next = c.ask(next, 60); wanted(t, socket) > 1 {
			crowded = true
			break
		}
	}
	if !crowded {
		t.Error("the reader is woken for each")
	}
	for range 200 {
		began := time.Now()
		next = c.ask(next, 1)
		if took := time.Since(began); took > time.Second {
			t.Errorf("a request took %v", took)
		}
	}
	if n := wanted(t, socket); n != 1 {
		t.Errorf("after single requests the reader is woken for %d bytes", n)
	}
}

func TestCrowd(t *testing.T) {
	var c crowd
	now := time.Now()
	// look is crowdLooks looks, all alike, and whether the next requests are to be waited for.
	look := func(requests int, every time.Duration, late bool) (wait bool) {
		for range crowdLooks {
			now = now.Add(every)
			wait = c.came(now, requests, late)
		}
		return wait
	}
	const soon = 100 * time.Microsecond
	check := func(what string, got, want bool) {
		t.Helper()
		if got != want {
			t.Errorf("%s: waits %v", what, got)
		}
	}
	check("one at a time", look(1, soon, false), false)
	check("two at a time, but seldom", look(2, 5*time.Millisecond, false), false)
	check("two at a time", look(2, soon, false), true)
	check("many once waited for", look(12, time.Millisecond, false), true)
	check("few though waited for", look(5, soon, false), false)
	check("two at a time, soon after that", look(2, leastPause/crowdLooks/2, false), false)
	now = now.Add(leastPause)
	check("two at a time, a while after that", look(2, soon, false), true)
	check("many, but late", look(12, soon, true), false)
	now = now.Add(leastPause + soon)
	check("two at a time, when it was in vain twice", look(2, soon, false), false)
	now = now.Add(leastPause)
	check("two at a time, after as long again", look(2, soon, false), true)
	check("many", look(12, soon, false), true)
	check("few", look(5, soon, false), false)
	now = now.Add(leastPause)
	check("two at a time, a while after waiting was worth it", look(2, soon, false), true)
	for range 20 {
		look(5, soon, false)
		now = now.Add(mostPause)
		check("two at a time, in vain many times", look(2, soon, false), true)
	}
}
