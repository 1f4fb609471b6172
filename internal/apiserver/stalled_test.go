package apiserver_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authn"
	"skiff/internal/journey"
)

// sendAs sends a request of somebody who is not the administrator.
func (s *server) sendAs(user, method, path string, body any) answer {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), method, path, reader(s.t, body))
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r.WithContext(authn.InProcess(r.Context(), &authn.User{Username: user, Groups: []string{authn.SystemAuthenticated}})))
	return answer{s.t, w.Code, w.Header(), w.Body.Bytes()}
}

// A user with more requests than seats waits for them, and is told to come back later; nobody else notices.
func TestTooManyRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, kept := slowServer(t, func(o *apiserver.Options) { o.MaxInFlight, o.MaxMutatingInFlight = 40, 20 })
		kept.close()
		const many = 200
		answers := make(chan answer, many)
		for range many {
			go func() { answers <- s.sendAs("greedy", "GET", inNamespace("configmaps"), nil) }()
		}
		synctest.Wait()
		began := time.Now()
		refused := s.sendAs("greedy", "GET", inNamespace("configmaps"), nil)
		refused.refused(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
		if took := time.Since(began); took > 15*time.Second || refused.Header.Get("Retry-After") != "1" {
			t.Errorf("refused after %v, come back after %q", took, refused.Header.Get("Retry-After"))
		}
		began = time.Now()
		s.sendAs("modest", "GET", "/version", nil).ok()
		s.sendAs("modest", "POST", inNamespace("configmaps"), configMap("a")).ok()
		s.sendAs("system:anonymous", "GET", "/livez", nil).ok()
		w := s.watch(inNamespace("configmaps")+"?watch=true&resourceVersion=0", "application/json", nil)
		told(t, w, 1)
		if took := time.Since(began); took > 0 {
			t.Errorf("others waited for %v", took)
		}
		waiting := make(chan answer)
		go func() { waiting <- s.sendAs("greedy", "GET", inNamespace("configmaps"), nil) }()
		synctest.Wait()
		kept.open()
		(<-waiting).ok()
		codes := map[int]int{}
		for range many {
			codes[(<-answers).Code]++
		}
		if codes[200] == 0 || codes[200] > 30 || codes[200]+codes[429] != many {
			t.Errorf("answered %v", codes)
		}
	})
}

// A client that announces a body and does not send it is answered when its time is over, and its place is free again.
func TestStalledBody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t, func(o *apiserver.Options) { o.MaxMutatingInFlight = 1 })
		dial := overNetwork(t, s)
		conn := dial()
		began := time.Now()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: skiff\r\nContent-Length: 100\r\n\r\n{\"metadata\":", inNamespace("configmaps"))
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		answer{t, response.StatusCode, response.Header, body}.refused(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
		if took := time.Since(began); took != 15*time.Second {
			t.Errorf("answered after %v", took)
		}
		s.create("a", nil)
	})
}

// A list that nobody reads is given up when its time is over.
func TestStuckReader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t, func(o *apiserver.Options) { o.MaxInFlight = 1 })
		s.send("POST", inNamespace("configmaps"), configMap("large", "k", strings.Repeat("x", 900<<10))).ok()
		conn := overNetwork(t, s)()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: skiff\r\n\r\n", inNamespace("configmaps"))
		time.Sleep(16 * time.Second)
		if rest, _ := io.ReadAll(conn); len(rest) > 900<<10 {
			t.Error("the whole list was sent")
		}
		s.send("GET", inNamespace("configmaps", "large"), nil).ok() // its place is free
	})
}

// Spans that are announced and not sent hold nothing for long.
func TestStalledSpans(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t, func(o *apiserver.Options) { o.Journey = journey.New(journey.Options{Capacity: 8}) })
		conn := overNetwork(t, s)()
		_ = conn.SetDeadline(time.Now().Add(time.Hour))
		began := time.Now()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: skiff\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", journey.PathSpans)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if took := time.Since(began); err != nil || response.StatusCode != http.StatusGatewayTimeout || took != 15*time.Second {
			t.Errorf("after %v: %v %v", took, response, err)
		}
	})
}

// A body that nobody reads and that does not come holds a connection until the request's deadline.
func TestUnreadBody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		conn := overNetwork(t, s)()
		_ = conn.SetDeadline(time.Now().Add(time.Hour))
		began := time.Now()
		fmt.Fprintf(conn, "POST /version HTTP/1.1\r\nHost: skiff\r\nContent-Length: 1000\r\n\r\n")
		answer, err := io.ReadAll(conn)
		if took := time.Since(began); err != nil || took > 2*time.Minute || !strings.HasPrefix(string(answer), "HTTP/1.1 405") {
			t.Errorf("after %v: %v, %s", took, err, answer)
		}
	})
}

// overNetwork serves HTTP over pipes, so that it works in a bubble.
func overNetwork(t *testing.T, s *server) (dial func() net.Conn) {
	listener := &pipeListener{made: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Handler: s, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(listener) })
	t.Cleanup(func() {
		srv.Close()
		serving.Wait()
	})
	return func() net.Conn {
		here, there := net.Pipe()
		listener.made <- there
		t.Cleanup(func() { here.Close() })
		return here
	}
}

type pipeListener struct {
	made   chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.made:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipeListener) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }
