package tunnel

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// world is a server and the agent of a node, which has an echoing pod.
type world struct {
	hub    *Hub
	api    *httptest.Server
	pod    netip.AddrPort
	direct atomic.Int32 // how often it was tried without the tunnel
	stop   func()       // ends the agent
}

var errDirect = errors.New("there is no direct way")

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{}
	pod, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pod.Close() })
	w.pod = netip.MustParseAddrPort(pod.Addr().String())
	go func() {
		for {
			conn, err := pod.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	node := &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: []string{"127.0.0.2/32", "127.0.0.4/32"}}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Address: "127.0.0.3"}}}}
	w.hub = NewHub(HubOptions{Log: slog.New(slog.DiscardHandler),
		Node: func(_ context.Context, name string) *corev1.Node {
			if name != "one" {
				return nil
			}
			return node
		},
		Direct: func(context.Context, string, string) (net.Conn, error) {
			w.direct.Add(1)
			return nil, errDirect
		},
	})
	w.api = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.hub.Serve(rw, r, strings.TrimPrefix(r.URL.Path, PathPrefix))
	}))
	t.Cleanup(w.api.Close)
	t.Cleanup(w.hub.Close)
	w.stop = w.agent(t)
	w.await(t, true)
	return w
}

// agent keeps a tunnel until what it returns is called, or the test ends.
func (w *world) agent(t testing.TB) func() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		Keep(ctx, AgentOptions{Node: "one", Host: w.api.Listener.Addr().String(), Log: slog.New(slog.DiscardHandler),
			Dial: func(ctx context.Context) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", w.api.Listener.Addr().String())
			},
			Allowed: func(_ context.Context, to netip.AddrPort) bool { return to.Addr() == w.pod.Addr() },
		})
	})
	stop := func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func (w *world) await(t testing.TB, has bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); w.hub.Has("one") != has; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("whether the node has a tunnel is not %v", has)
		}
	}
}

// Many connections at once carry much in both directions, each its own.
func TestEcho(t *testing.T) {
	w := newWorld(t)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			conn, err := w.hub.Dial(t.Context(), "tcp", w.pod.String())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			sent := make([]byte, 1<<20)
			_, _ = rand.Read(sent)
			go func() { _, _ = conn.Write(sent) }()
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("what came back differs: %v", err)
			}
			if conn.RemoteAddr().String() != w.pod.String() {
				t.Errorf("it leads to %s", conn.RemoteAddr())
			}
		})
	}
	all.Wait()
	if w.direct.Load() != 0 {
		t.Error("a direct way was tried")
	}
}

// A connection has deadlines, and once closed says so as connections do.
func TestDeadlines(t *testing.T) {
	w := newWorld(t)
	conn, err := w.hub.Dial(t.Context(), "tcp", w.pod.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read after its deadline: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a read after closing: %v", err)
	}
	if _, err := conn.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write after closing: %v", err)
	}
}

// What the pod said last is heard though it has closed.
func TestLastWords(t *testing.T) {
	w := newWorld(t)
	listener, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = fmt.Fprint(conn, "farewell")
		conn.Close()
	}()
	conn, err := w.hub.Dial(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := io.ReadAll(conn); string(got) != "farewell" || err != nil {
		t.Errorf("heard %q, %v", got, err)
	}
}

// Addresses of others are tried directly; what the agent does not allow, and what does not answer, too.
func TestElsewhere(t *testing.T) {
	w := newWorld(t)
	for address, want := range map[string]string{
		"192.0.2.1:80":       "there is no direct way",
		"name.example:80":    "there is no direct way",
		"127.0.0.3:22":       "403 Forbidden: 127.0.0.3:22 is not the kubelet of node one, a pod on it or a service",
		"127.0.0.2:1":        "502 Bad Gateway",
		"127.0.0.4:80":       "403 Forbidden",
		"[::ffff:7f00:3]:22": "403 Forbidden",
	} {
		if _, err := w.hub.Dial(t.Context(), "tcp", address); !errors.Is(err, errDirect) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
	if w.direct.Load() != 6 {
		t.Errorf("the direct way was tried %d times", w.direct.Load())
	}
}

// When the agent ends, what goes through its tunnel does too; when it comes back, so does the tunnel. A second agent of the same node takes its place.
func TestComingBack(t *testing.T) {
	w := newWorld(t)
	conn, err := w.hub.Dial(t.Context(), "tcp", w.pod.String())
	if err != nil {
		t.Fatal(err)
	}
	w.stop()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlived its tunnel")
	}
	w.await(t, false)
	w.agent(t)
	w.await(t, true)
	w.hub.mu.Lock()
	link := w.hub.links["one"]
	w.hub.mu.Unlock()
	link.Conn.Close() // as a NAT would that forgets it
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if conn, err := w.hub.Dial(t.Context(), "tcp", w.pod.String()); err == nil {
			conn.Close()
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// A tunnel carries so many connections and no more; the rest are tried directly.
func TestBound(t *testing.T) {
	w := newWorld(t)
	for range maxStreams {
		conn, err := w.hub.Dial(t.Context(), "tcp", w.pod.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if _, err := w.hub.Dial(t.Context(), "tcp", w.pod.String()); !errors.Is(err, errDirect) || !strings.Contains(err.Error(), "as many connections as it can") {
		t.Errorf("one more: %v", err)
	}
}

// Who does not upgrade is told what this is.
func TestNotAnAgent(t *testing.T) {
	w := newWorld(t)
	answer, err := http.Get(w.api.URL + Path("two"))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusUpgradeRequired || w.hub.Has("two") {
		t.Errorf("a plain request: %s", answer.Status)
	}
}

// A hub that is closed has no tunnels and makes no more.
func TestClosed(t *testing.T) {
	w := newWorld(t)
	w.hub.Close()
	w.await(t, false)
	if _, err := w.hub.Dial(t.Context(), "tcp", w.pod.String()); !errors.Is(err, errDirect) {
		t.Error(err)
	}
}

// BenchmarkTunnel and BenchmarkDirect compare what a connection carries.
func BenchmarkTunnel(b *testing.B) {
	w := newWorld(b)
	carryMuch(b, func() (net.Conn, error) { return w.hub.Dial(b.Context(), "tcp", w.pod.String()) })
}

func BenchmarkDirect(b *testing.B) {
	w := newWorld(b)
	carryMuch(b, func() (net.Conn, error) { return net.Dial("tcp", w.pod.String()) })
}

// BenchmarkOpen is what it takes to open a connection and hear the first answer.
func BenchmarkOpen(b *testing.B) {
	w := newWorld(b)
	one := make([]byte, 1)
	for b.Loop() {
		conn, err := w.hub.Dial(b.Context(), "tcp", w.pod.String())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := conn.Write(one); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, one); err != nil {
			b.Fatal(err)
		}
		conn.Close()
	}
}

func carryMuch(b *testing.B, dial func() (net.Conn, error)) {
	conn, err := dial()
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	chunk := make([]byte, 64<<10)
	b.SetBytes(int64(len(chunk)))
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(io.Discard, conn) })
	for b.Loop() {
		if _, err := conn.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
	conn.Close()
	reading.Wait()
}
