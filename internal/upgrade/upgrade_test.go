package upgrade

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/proxy"
)

const lastWords = "exit code 3"

// closingBackend starts a backend that writes something and closes, without reading its input.
func closingBackend(t *testing.T) *url.URL {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: words\r\n\r\n")
		_, _ = io.ReadFull(conn, make([]byte, 1000))
		fmt.Fprint(conn, lastWords)
		_ = conn.Close()
	}))
	t.Cleanup(s.Close)
	location, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return location
}

type failTest struct{ t *testing.T }

func (r failTest) Error(_ http.ResponseWriter, _ *http.Request, err error) { r.t.Error(err) }

// TestLastData checks that a client that never stops sending receives all data of the backend, through a proxy with TCP clients and one with TLS clients.
func TestLastData(t *testing.T) {
	location := closingBackend(t)
	transport := &http.Transport{DialContext: Dial((&net.Dialer{}).DialContext)}
	proxied := http.HandlerFunc(func(w http.ResponseWriter, rq *http.Request) {
		proxy.NewUpgradeAwareHandler(location, transport, false, true, failTest{t}).ServeHTTP(Hijackable(w), rq)
	})
	for name, start := range map[string]func(http.Handler) *httptest.Server{"plain": httptest.NewServer, "TLS": httptest.NewTLSServer} {
		t.Run(name, func(t *testing.T) {
			s := start(proxied)
			defer s.Close()
			for range 100 {
				if said := flood(t, s); said != lastWords {
					t.Fatalf("the client heard %q", said)
				}
			}
		})
	}
}

// flood sends all the time, and returns what it receives.
func flood(t *testing.T, s *httptest.Server) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	rq, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	rq.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"words"}}
	resp, err := s.Client().Transport.RoundTrip(rq)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatal(resp.Status)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for junk := make([]byte, 16<<10); ; {
			if _, err := conn.Write(junk); err != nil {
				return
			}
		}
	}()
	said, _ := io.ReadAll(bufio.NewReader(conn))
	_ = conn.Close()
	<-ended
	return strings.TrimSpace(string(said))
}

// TestDrainTimeout checks that a failed write does not wait forever for a backend that sends nothing.
func TestDrainTimeout(t *testing.T) {
	here, there := net.Pipe()
	conn, err := Dial(func(context.Context, string, string) (net.Conn, error) { return here, nil })(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	_ = there.Close()
	go func() { _, _ = conn.Read(make([]byte, 1)) }()
	began := time.Now()
	if _, err := conn.Write([]byte("x")); err == nil {
		t.Error("no error")
	}
	if took := time.Since(began); took > drainTimeout/2 {
		t.Errorf("waited %v for one that has ended", took)
	}
}
