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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fixture is a server and the agent of a node, which has an echoing pod.
type fixture struct {
	hub    *Hub
	api    *httptest.Server
	pod    netip.AddrPort
	nodes  []*corev1.Node
	direct atomic.Int32 // how often it was tried without the tunnel
	stop   func()       // ends the agent
}

// newNode is a Node that was created so many seconds after the first.
func newNode(name string, second int, ranges []string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(1_900_000_000+int64(second), 0)}, Spec: corev1.NodeSpec{PodCIDRs: ranges}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

var errDirect = errors.New("there is no direct way")

func newFixture(t testing.TB) *fixture {
	t.Helper()
	w := &fixture{}
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
	w.nodes = []*corev1.Node{newNode("one", 0, []string{"127.0.0.2/32", "127.0.0.4/32"}, "192.0.2.3")}
	w.hub = NewHub(HubOptions{Log: slog.New(slog.DiscardHandler), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}, OwnAddresses: func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("192.0.2.100")} },
		Nodes: func(context.Context) ([]*corev1.Node, error) { return w.nodes, nil },
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
	w.stop = w.agent(t, "one", func(to netip.AddrPort) bool { return to.Addr() == w.pod.Addr() })
	w.await(t, "one", true)
	return w
}

// agent keeps a tunnel until what it returns is called, or the test ends.
func (w *fixture) agent(t testing.TB, node string, allowed func(netip.AddrPort) bool) func() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		Keep(ctx, AgentOptions{Node: node, Host: w.api.Listener.Addr().String(), Log: slog.New(slog.DiscardHandler),
			Dial: func(ctx context.Context) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", w.api.Listener.Addr().String())
			},
			Allowed: func(_ context.Context, to netip.AddrPort) bool { return allowed(to) },
		})
	})
	stop := func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func (w *fixture) await(t testing.TB, node string, has bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); w.hub.Has(node) != has; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("whether the node has a tunnel is not %v", has)
		}
	}
}

// Many connections at once carry much in both directions, each its own.
func TestEcho(t *testing.T) {
	w := newFixture(t)
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
	w := newFixture(t)
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
	w := newFixture(t)
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
	w := newFixture(t)
	for address, want := range map[string]string{
		"192.0.2.1:80":          "there is no direct way",
		"name.example:80":       "there is no direct way",
		"192.0.2.3:22":          "403 Forbidden: 192.0.2.3:22 is not the kubelet of node one, a pod on it or a service",
		"127.0.0.2:1":           "502 Bad Gateway",
		"127.0.0.4:80":          "403 Forbidden",
		"[::ffff:192.0.2.3]:22": "403 Forbidden",
	} {
		if _, err := w.hub.Dial(t.Context(), "tcp", address); !errors.Is(err, errDirect) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
	if w.direct.Load() != 6 {
		t.Errorf("the direct way was tried %d times", w.direct.Load())
	}
}

// A node that announces what is another's, or nobody's, gets no traffic for it, whether it came before or after the one whose it is. What it has itself is
// reached.
func TestClaims(t *testing.T) {
	for what, second := range map[string]int{"the first node": -1, "a later node": 1} {
		t.Run(what, func(t *testing.T) {
			w := newFixture(t)
			metadata := "169.254.169.254"
			thief := newNode("thief", second, []string{"127.0.0.0/8", "127.0.0.9/32", "10.43.0.0/16", "0.0.0.0/0"},
				"192.0.2.3", "127.0.0.2", "127.0.0.1", metadata, "10.43.0.1", "192.0.2.100", "192.0.2.9")
			if second < 0 {
				thief.Spec.PodCIDRs = thief.Spec.PodCIDRs[1:] // the allocator gives nobody all of the cluster's
			}
			w.hub.listing.Lock()
			w.nodes = append(w.nodes, thief)
			w.hub.listing.Unlock()
			var mu sync.Mutex
			var asked []string
			w.agent(t, "thief", func(to netip.AddrPort) bool {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, to.Addr().String())
				return false
			})
			w.await(t, "thief", true)
			for _, address := range []string{"192.0.2.3:10250", w.pod.String(), "127.0.0.1:80", metadata + ":80", "10.43.0.1:443", "192.0.2.100:6443", "198.51.100.1:80", "192.0.2.9:10250", "127.0.0.9:80"} {
				if conn, err := w.hub.Dial(t.Context(), "tcp", address); err == nil {
					conn.Close()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if want := []string{"192.0.2.9", "127.0.0.9"}; !slices.Equal(asked, want) {
				t.Errorf("the node was asked for %v, not for %v", asked, want)
			}
			conn, err := w.hub.Dial(t.Context(), "tcp", w.pod.String())
			if err != nil {
				t.Fatalf("the pod whose address was claimed: %v", err)
			}
			conn.Close()
		})
	}
}

// When the agent ends, what goes through its tunnel does too; when it comes back, so does the tunnel. A second agent of the same node takes its place.
func TestComingBack(t *testing.T) {
	w := newFixture(t)
	conn, err := w.hub.Dial(t.Context(), "tcp", w.pod.String())
	if err != nil {
		t.Fatal(err)
	}
	w.stop()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlived its tunnel")
	}
	w.await(t, "one", false)
	w.agent(t, "one", func(to netip.AddrPort) bool { return to.Addr() == w.pod.Addr() })
	w.await(t, "one", true)
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
	w := newFixture(t)
	for range maxStreams {
		conn, err := w.hub.Dial(t.Context(), "tcp", w.pod.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if _, err := w.hub.Dial(t.Context(), "tcp", w.pod.String()); !errors.Is(err, errDirect) || !strings.Contains(err.Error(), "as many streams as it can") {
		t.Errorf("one more: %v", err)
	}
}

// Who does not upgrade is told what this is.
func TestNotAnAgent(t *testing.T) {
	w := newFixture(t)
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
	w := newFixture(t)
	w.hub.Close()
	w.await(t, "one", false)
	if _, err := w.hub.Dial(t.Context(), "tcp", w.pod.String()); !errors.Is(err, errDirect) {
		t.Error(err)
	}
}

// BenchmarkTunnel and BenchmarkDirect compare what a connection carries.
func BenchmarkTunnel(b *testing.B) {
	w := newFixture(b)
	carryMuch(b, func() (net.Conn, error) { return w.hub.Dial(b.Context(), "tcp", w.pod.String()) })
}

func BenchmarkDirect(b *testing.B) {
	w := newFixture(b)
	carryMuch(b, func() (net.Conn, error) { return net.Dial("tcp", w.pod.String()) })
}

// BenchmarkOpen is what it takes to open a connection and hear the first answer.
func BenchmarkOpen(b *testing.B) {
	w := newFixture(b)
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
