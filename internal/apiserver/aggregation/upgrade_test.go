package aggregation_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"skiff/internal/apiserver"
	"skiff/internal/apitest"
)

// upgrade asks for an upgrade over a connection of its own, and returns the connection and the response to that.
func (c *cluster) upgrade(method, path, protocol string) (net.Conn, *bufio.Reader, *http.Response) {
	c.t.Helper()
	config := c.Config()
	tlsConfig, err := rest.TLSConfigFor(config)
	c.must(err)
	tlsConfig.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(c.URL(), "https://"), tlsConfig)
	c.must(err)
	c.t.Cleanup(func() { conn.Close() })
	c.must(conn.SetDeadline(time.Now().Add(timeout)))
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Remote-User: root\r\n\r\n", method, path, config.BearerToken, protocol)
	from := bufio.NewReader(conn)
	response, err := http.ReadResponse(from, nil)
	c.must(err)
	return conn, from, response
}

// upgraded returns a handler that upgrades to a protocol, and then sends back what it receives until that ends.
func upgraded(w http.ResponseWriter, r *http.Request) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\nhello %s\n", r.Header.Get("Upgrade"), r.Header.Get("X-Remote-User"))
	_, _ = io.Copy(conn, buf)
}

// Connections are upgraded through this server (exec, consoles), and last as long as both sides want: the timeout of requests does not end them.
func TestUpgrade(t *testing.T) {
	const requestTimeout = 500 * time.Millisecond
	c, b := newWardle(t, apitest.WithServer(func(o *apiserver.Options) { o.RequestTimeout = requestTimeout }))
	b.handle(flunders+"/", upgraded)
	for _, one := range []struct{ method, subresource, protocol string }{{"POST", "exec", "SPDY/3.1"}, {"GET", "exec", "websocket"}, {"GET", "console", "websocket"}} {
		conn, from, response := c.upgrade(one.method, flunders+"/a/"+one.subresource, one.protocol)
		if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Upgrade") != one.protocol {
			t.Fatalf("%v: %v", one, response)
		}
		if line, err := from.ReadString('\n'); err != nil || line != "hello kubernetes-admin\n" {
			t.Errorf("%v: %q, %v", one, line, err)
		}
		for began := time.Now(); ; {
			fmt.Fprintln(conn, "again")
			if line, err := from.ReadString('\n'); err != nil || line != "again\n" {
				t.Fatalf("%v: after %v: %q, %v", one, time.Since(began), line, err)
			}
			if time.Since(began) > requestTimeout+requestTimeout/2 {
				break
			}
		}
		conn.Close()
	}
	for _, r := range b.received() {
		if r.proto != "HTTP/1.1" || r.certificate != "front-proxy-client" || r.serverName != "wardle.default.svc" {
			t.Errorf("an upgrade was asked for over %+v", r)
		}
	}
}

// An upgrade that is refused is answered with what the other server says.
func TestUpgradeRefused(t *testing.T) {
	c, b := newWardle(t)
	b.handle(flunders+"/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not here", http.StatusForbidden) })
	_, _, response := c.upgrade("GET", flunders+"/a/exec", "websocket")
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusForbidden || !strings.Contains(string(body), "not here") {
		t.Errorf("%d %s", response.StatusCode, body)
	}
}

// A server that accepts a connection and does not answer an upgrade, or says more than headers can be, does not keep it.
func TestUpgradeHangs(t *testing.T) {
	c, b := newWardle(t, apitest.WithServer(func(o *apiserver.Options) { o.RequestTimeout = 500 * time.Millisecond }))
	ended := make(chan struct{})
	b.handle(flunders+"/", func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		close(ended)
	})
	if _, _, response := c.upgrade("GET", flunders+"/a/console", "websocket"); response.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("answered with %s", response.Status)
	}
	select {
	case <-ended:
	case <-time.After(timeout):
		t.Error("the connection to the other server is open")
	}
	b.handle(flunders+"/", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nX: ")
		for {
			if _, err := conn.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	if _, _, response := c.upgrade("GET", flunders+"/a/exec", "websocket"); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("headers without end: %s", response.Status)
	}
}
