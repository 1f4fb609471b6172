package http2

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// countWaits counts how often a request waits for its client.
type countWaits struct{ n atomic.Int32 }

func (c *countWaits) Waiting() { c.n.Add(1) }

// TestLimitWaits: a handler that waits for its client without progress gets an error in time, whatever it waits for, and the client sees the stream end.
func TestLimitWaits(t *testing.T) {
	const stall = 100 * time.Millisecond
	for name, test := range map[string]struct {
		path string
		drip func(c *raw) // what the client does every 20 ms
	}{
		"closed window":     {path: "/write"},
		"withheld body":     {path: "/read"},
		"window by bytes":   {path: "/write", drip: func(c *raw) { c.WriteWindowUpdate(1, 1) }},
		"body by bytes":     {path: "/read", drip: func(c *raw) { c.WriteData(1, false, []byte("x")) }},
		"settings instead":  {path: "/write", drip: func(c *raw) { c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) }},
		"after the handler": {path: "/small"},
	} {
		t.Run(name, func(t *testing.T) {
			failed, waits := make(chan error, 1), &countWaits{}
			began := make(chan time.Time, 1)
			address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				now := time.Now()
				began <- now
				if r.URL.Path != "/small" {
					w.(*response).LimitWaits(stall, now.Add(3*stall), waits)
				}
				var err error
				switch r.URL.Path {
				case "/write":
					_, err = w.Write(make([]byte, 100_000))
				case "/read":
					_, err = io.ReadAll(r.Body)
				case "/small": // has no limits of its own
					_, err = io.WriteString(w, "small")
				}
				failed <- err
			}), Options{WriteTimeout: stall})
			c := dialRaw(t, address)
			c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			c.path = test.path
			c.request(1, test.path != "/read")
			start := <-began
			stop := make(chan struct{})
			defer close(stop)
			if test.drip != nil {
				go func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(stall / 5):
							test.drip(c)
						}
					}
				}()
			}
			if err := c.until(func(f http2.Frame) bool { r, ok := f.(*http2.RSTStreamFrame); return ok && r.StreamID == 1 }); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took < stall-time.Millisecond {
				t.Errorf("the stream ended after %v", took)
			}
			err := <-failed
			if test.path == "/small" {
				return
			}
			if !errors.Is(err, os.ErrDeadlineExceeded) || waits.n.Load() == 0 {
				t.Errorf("the handler got %v and waited %d times", err, waits.n.Load())
			}
		})
	}
}

// TestIdleFrames: a client that sends too many frames that carry no request further is disconnected, even if it reads every response.
func TestIdleFrames(t *testing.T) {
	for name, send := range map[string]func(c *raw, i uint32){
		"rapid reset": func(c *raw, i uint32) { // CVE-2023-44487
			c.request(2*i+3, true)
			c.WriteRSTStream(2*i+3, http2.ErrCodeCancel)
		},
		"made to reset": func(c *raw, i uint32) { // CVE-2025-8671
			c.request(2*i+3, false)
			c.WriteWindowUpdate(2*i+3, 1<<31-1)
		},
		"refused requests": func(c *raw, i uint32) { c.request(2*i+3, false, "connection", "x") },
		"ping":             func(c *raw, _ uint32) { c.WritePing(false, [8]byte{}) },
		"settings":         func(c *raw, i uint32) { c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: i % 2}) },
		"priority":         func(c *raw, _ uint32) { c.WritePriority(5, http2.PriorityParam{StreamDep: 3}) },
		"empty data":       func(c *raw, _ uint32) { c.WriteData(1, false, nil) },
		"padding":          func(c *raw, _ uint32) { c.WriteDataPadded(1, false, nil, make([]byte, 10)) },
		"unknown frames":   func(c *raw, _ uint32) { c.WriteRawFrame(0x77, 0, 0, []byte("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/wait" {
					<-release
				}
			}), Options{})
			t.Cleanup(func() { close(release) })
			c := dialRaw(t, address)
			c.path = "/wait"
			c.request(1, false)
			c.path = "/"
			go func() {
				for i := range uint32(100_000) {
					send(c, i)
				}
			}()
			code := http2.ErrCodeNo
			_ = c.until(func(f http2.Frame) bool {
				if away, ok := f.(*http2.GoAwayFrame); ok {
					code = away.ErrCode
				}
				return code != http2.ErrCodeNo
			})
			if code != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("the server went on, or went away with %v", code)
			}
		})
	}
}

// TestIdleFrameLimiter: half of the allowed rate of idle frames is allowed for ever.
func TestIdleFrameLimiter(t *testing.T) {
	c := idleFrameLimiter{}
	for range 10 * idleFrameBurst {
		c.since = time.Now().Add(-time.Second / (idleFrameRate / 2))
		if !c.allow() {
			t.Fatalf("%d frames a second are too many", idleFrameRate/2)
		}
	}
}

// TestContinuationFlood: a header block without an end ends the connection before it takes memory.
func TestContinuationFlood(t *testing.T) {
	address := serve(t, http.NotFoundHandler(), Options{MaxHeaderBytes: 64 << 10})
	for name, fragment := range map[string]func(*raw) []byte{
		"empty": func(*raw) []byte { return nil },
		"fields": func(c *raw) []byte {
			c.buf.Reset()
			for range 100 {
				c.enc.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 100), Sensitive: true})
			}
			return c.buf.Bytes()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := dialRaw(t, address)
			c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: fragment(c)})
			sent := make(chan int, 1)
			go func() {
				n := 0
				for c.WriteContinuation(1, false, fragment(c)) == nil && n < 1<<30 {
					n += 9 + c.buf.Len()
				}
				sent <- n
			}()
			if err := c.until(func(http2.Frame) bool { return false }); err == nil || isTimeout(err) {
				t.Errorf("the connection goes on: %v", err)
			}
			c.conn.Close()
			t.Logf("%d bytes were sent", <-sent)
		})
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// TestHeaderBomb: a small header block that decodes to large headers is refused.
func TestHeaderBomb(t *testing.T) {
	var served atomic.Int32
	address := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }), Options{})
	c := dialRaw(t, address)
	var bomb []string
	for range 5_000 { // indexed: a byte each
		bomb = append(bomb, "x-bomb", strings.Repeat("x", 3000))
	}
	c.request(1, true, bomb...)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := c.until(func(f http2.Frame) bool {
		h, ok := f.(*http2.MetaHeadersFrame)
		return ok && h.PseudoValue("status") == "431"
	}); err != nil || served.Load() != 0 {
		t.Errorf("%v, served %d", err, served.Load())
	}
}

// TestFirstRequest: a connection without a request, which is not authenticated yet, is closed soon.
func TestFirstRequest(t *testing.T) {
	address := serve(t, http.NotFoundHandler(), Options{FirstRequestTimeout: 50 * time.Millisecond})
	c := dialRaw(t, address)
	if err := c.until(func(f http2.Frame) bool { _, ok := f.(*http2.GoAwayFrame); return ok }); err != nil {
		t.Error(err)
	}
	used := dialRaw(t, address)
	used.request(1, true)
	time.Sleep(200 * time.Millisecond)
	used.request(3, true)
	if err := used.until(func(f http2.Frame) bool { return f.Header().Type == http2.FrameHeaders && f.Header().StreamID == 3 }); err != nil {
		t.Errorf("a connection that was used: %v", err)
	}
}

// fakeConn is a connection between two addresses.
type fakeConn struct {
	net.Conn
	local, remote string
}

func (c fakeConn) LocalAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.local))
}
func (c fakeConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.remote))
}

// TestConnLimit: addresses are counted by client, this machine may have half of all, and an IPv6 /64 counts as one.
func TestConnLimit(t *testing.T) {
	l := newConnLimit(Options{MaxConnections: 100, MaxConnectionsPerAddress: 10}, nil)
	acquire := func(remote string, limit int) (releases []func()) {
		for range limit {
			release, ok := l.acquire(fakeConn{local: "10.0.0.1:6443", remote: remote})
			if !ok {
				break
			}
			releases = append(releases, release)
		}
		return releases
	}
	pod := acquire("10.42.0.7:1000", 100)
	same := acquire("[::ffff:10.42.0.7]:1001", 100)
	here, host := acquire("127.0.0.1:1000", 100), acquire("10.0.0.1:1000", 20)
	site, other := acquire("[2001:db8::1]:1000", 7), acquire("[2001:db8::2]:1000", 100)
	if len(pod) != 10 || len(same) != 0 || len(here) != 50 || len(host) != 20 || len(site)+len(other) != 10 {
		t.Fatalf("a pod %d, again %d, this machine %d and %d, a site %d and %d", len(pod), len(same), len(here), len(host), len(site), len(other))
	}
	if rest := acquire("10.42.0.8:1000", 100); len(rest) != 10 {
		t.Errorf("another pod %d", len(rest))
	}
	if full := acquire("10.42.0.9:1000", 1); len(full) != 0 {
		t.Error("more connections than the limit")
	}
	pod[0]()
	pod[0]()
	if again := acquire("10.42.0.7:1000", 100); len(again) != 1 {
		t.Errorf("%d for one that was closed", len(again))
	}
}

// TestMaxConnections: connections over the limit are closed at once, and those that end make room.
func TestMaxConnections(t *testing.T) {
	address := serve(t, http.NotFoundHandler(), Options{MaxConnections: 4, MaxConnectionsPerAddress: 1})
	first, second := dialRaw(t, address), dialRaw(t, address) // this machine may have half
	third, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	third.SetDeadline(time.Now().Add(10 * time.Second))
	if n, err := third.Read(make([]byte, 1)); n != 0 || err == nil || isTimeout(err) {
		t.Errorf("read %d, %v", n, err)
	}
	first.conn.Close()
	for deadline := time.Now().Add(10 * time.Second); ; {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
		_, err = conn.Read(make([]byte, 1))
		conn.Close()
		if isTimeout(err) { // the server waits for the client's handshake
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no room after a connection was closed")
		}
	}
	second.request(1, true)
	if err := second.until(func(f http2.Frame) bool { return f.Header().Type == http2.FrameHeaders }); err != nil {
		t.Error(err)
	}
}
