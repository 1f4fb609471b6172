package apiserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport/websocket"

	"skiff/internal/http2"
)

// The kinds of WebSocket messages.
const (
	textMessage   = 1
	binaryMessage = 2
)

// socket is a WebSocket as client-go makes it.
type socket interface {
	ReadMessage() (kind int, message []byte, err error)
	Subprotocol() string
	Close() error
}

// overTLS serves on a port, as the product does, and returns the server's address.
func (s *testServer) overTLS() string {
	s.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	forItsCertificate := httptest.NewTLSServer(nil)
	defer forItsCertificate.Close()
	front := &http.Server{Handler: s, TLSConfig: forItsCertificate.TLS}
	served := make(chan error)
	go func() { served <- http2.Serve(front, listener, http2.Options{}) }()
	s.t.Cleanup(func() {
		front.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			s.t.Error(err)
		}
	})
	return "https://" + listener.Addr().String()
}

// dial opens a WebSocket. The first of the protocols that is not a token is to be agreed on.
func dial(t *testing.T, url string, header http.Header, protocols ...string) (socket, error) {
	t.Helper()
	rt, holder, err := websocket.RoundTripperFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	ws, err := websocket.Negotiate(rt, holder, r, protocols...)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { ws.Close() })
	return ws, nil
}

func header(pairs ...string) http.Header {
	h := http.Header{"Authorization": {"Bearer " + testToken}, "Origin": {"https://page.example"}}
	for i := 0; i < len(pairs); i += 2 {
		h.Del(pairs[i])
		if pairs[i+1] != "" {
			h.Set(pairs[i], pairs[i+1])
		}
	}
	return h
}

const testMaps = "/api/v1/namespaces/test/configmaps"

func TestWatchOverWebSocket(t *testing.T) {
	s := newTestServer(t)
	url := s.overTLS() + testMaps + "?watch=true"
	s.must("POST", testMaps, `{"metadata":{"name":"a"},"data":{"k":"v"}}`)
	for accept, kind := range map[string]int{"": textMessage, "application/json": textMessage, "application/vnd.kubernetes.protobuf": binaryMessage} {
		t.Run(accept, func(t *testing.T) {
			ws, err := dial(t, url, header("Accept", accept), "binary.k8s.io")
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range []string{"ADDED", "MODIFIED", "MODIFIED"} {
				if i > 0 {
					s.must("PATCH", testMaps+"/a", fmt.Sprintf(`{"data":{"k":"%s%d"}}`, accept, i))
				}
				gotKind, message, err := ws.ReadMessage()
				if err != nil || gotKind != kind {
					t.Fatalf("%d %q %v", gotKind, message, err)
				}
				event := decodeEvent(t, message, kind == textMessage)
				obj, err := decodeObject(event.Object.Raw)
				if err != nil || event.Type != want || obj.Name != "a" || i > 0 && obj.Data["k"] != fmt.Sprint(accept, i) {
					t.Errorf("told %s %v %v, want %s", event.Type, obj, err, want)
				}
			}
		})
	}
}

func decodeEvent(t *testing.T, message []byte, text bool) (event metav1.WatchEvent) {
	t.Helper()
	var err error
	if text {
		if strings.Count(string(message), "\n") != 1 {
			t.Errorf("not one event: %q", message)
		}
		err = json.Unmarshal(message, &event)
	} else {
		err = event.Unmarshal(message)
	}
	if err != nil {
		t.Fatal(err)
	}
	return event
}

func decodeObject(raw []byte) (*corev1.ConfigMap, error) {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.ConfigMap), nil
}

// What is wrong before there is a stream is told as usual; what cannot be agreed on is told by closing the connection.
func TestWebSocketRefused(t *testing.T) {
	s := newTestServer(t)
	server := s.overTLS()
	for name, c := range map[string]struct {
		path   string
		header http.Header
		want   string
	}{
		"bad selector":           {testMaps + "?watch=true&labelSelector=a(", header(), "unable to parse requirement"},
		"unknown resource":       {"/api/v1/nothings?watch=true", header(), "could not find the requested resource"},
		"sendAnonymous":          {testMaps + "?watch=true", header("Authorization", ""), "Unauthorized"},
		"no origin":              {testMaps + "?watch=true", header("Origin", ""), "403 Forbidden"},
		"bad origin":             {testMaps + "?watch=true", header("Origin", "%"), "403 Forbidden"},
		"two protocols to watch": {testMaps + "?watch=true", header("Sec-Websocket-Protocol", "a, b"), "400 Bad Request"},
	} {
		t.Run(name, func(t *testing.T) {
			protocols := []string{"binary.k8s.io"}
			if c.header.Get("Sec-Websocket-Protocol") != "" {
				protocols = []string{"a", "b"}
				c.header.Del("Sec-Websocket-Protocol")
			}
			if _, err := dial(t, server+c.path, c.header, protocols...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
	// A connection of HTTP/2 cannot change; nor can one that is none.
	w := s.do("GET", testMaps+"?watch=true", "", "Connection", "Upgrade", "Upgrade", "websocket")
	if want := "this connection cannot become a WebSocket: feature not supported"; w.Code != 400 || !strings.Contains(w.Body.String(), want) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A token may come as a subprotocol, since browsers cannot set headers. It is not among those the server agrees to.
func TestWebSocketToken(t *testing.T) {
	s := newTestServer(t)
	token := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(testToken))
	ws, err := dial(t, s.overTLS()+testMaps+"?watch=true", header("Authorization", ""), token, "binary.k8s.io")
	if err != nil || ws.Subprotocol() != "binary.k8s.io" {
		t.Fatal(ws, err)
	}
}

// A watch over a WebSocket ends with its time, with the server, and with the client, and is gone then.
func TestWebSocketEnds(t *testing.T) {
	s := newTestServer(t)
	url := s.overTLS() + testMaps + "?watch=true"
	open := func(query string) socket {
		ws, err := dial(t, url+query, header(), "binary.k8s.io")
		if err != nil {
			t.Fatal(err)
		}
		return ws
	}
	closed := func(ws socket) {
		t.Helper()
		if _, message, err := ws.ReadMessage(); err == nil || !strings.Contains(err.Error(), "close 1000 (normal)") {
			t.Errorf("%q %v", message, err)
		}
	}
	closed(open("&timeoutSeconds=1"))
	open("").Close()
	s.until(func() string { return s.longRunning() }, "0")
	ws := open("")
	s.until(func() string { return s.longRunning() }, "1")
	s.Drain()
	closed(ws)
}

func (s *testServer) longRunning() string {
	for line := range strings.Lines(s.do("GET", "/metrics", "").Body.String()) {
		if rest, ok := strings.CutPrefix(line, "apiserver_longrunning_requests{"); ok {
			return strings.TrimSpace(rest[strings.LastIndex(rest, " "):])
		}
	}
	return "none"
}

// until waits for a condition.
func (s *testServer) until(get func() string, want string) {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); get() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s, want %s", get(), want)
		}
	}
}

func TestLogsOverWebSocket(t *testing.T) {
	s := newTestServer(t)
	host, port, _ := fakeKubelet(t)
	s.node("n", host, port)
	for _, name := range []string{"p", "broken"} {
		s.pod(name, "x", `,"nodeName":"n"`)
	}
	server := s.overTLS()
	for protocol, want := range map[string]string{
		"binary.k8s.io":        fmt.Sprintf(`%d "", %d "hello\n"`, binaryMessage, binaryMessage),
		"base64.binary.k8s.io": fmt.Sprintf(`%d "", %d "aGVsbG8K"`, textMessage, textMessage),
	} {
		ws, err := dial(t, server+testPods+"/p/log", header("Origin", ""), "unknown", protocol)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for {
			kind, message, err := ws.ReadMessage()
			if err != nil {
				break
			}
			got = append(got, fmt.Sprintf("%d %q", kind, message))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %s, want %s", protocol, got, want)
		}
	}
	if _, err := dial(t, server+testPods+"/p/log", header(), "unknown"); err == nil || !strings.Contains(err.Error(), "403 Forbidden") {
		t.Errorf("an unknown protocol: %v", err)
	}
	if _, err := dial(t, server+testPods+"/broken/log", header(), "binary.k8s.io"); err == nil || !strings.Contains(err.Error(), "disk gone") {
		t.Errorf("a kubelet that fails: %v", err)
	}
}

// Who leaves a log that says nothing leaves nobody behind.
func TestLeftLogOverWebSocket(t *testing.T) {
	s := newTestServer(t)
	left := make(chan struct{})
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	}))
	defer kubelet.Close()
	host, port, err := net.SplitHostPort(kubelet.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s.node("n", host, port)
	s.pod("p", "x", `,"nodeName":"n"`)
	ws, err := dial(t, s.overTLS()+testPods+"/p/log?follow=true", header(), "binary.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"", "begun"} {
		if _, message, err := ws.ReadMessage(); err != nil || string(message) != want {
			t.Fatalf("%q %v", message, err)
		}
	}
	ws.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	select {
	case <-left:
	case <-ctx.Done():
		t.Error("the kubelet still sends")
	}
}
