package images

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// Whoever lacks the password neither reads nor writes, and is told which way to authenticate.
func TestCredentialsAreAsked(t *testing.T) {
	s, c := startRegistry(t)
	m := c.pushImage("nginx", "1.0", "the layer")
	requests := [][2]string{
		{"GET", "/v2/"}, {"GET", "/v2/_catalog"}, {"GET", "/v2/nginx/tags/list"}, {"GET", "/v2/library/nginx/manifests/1.0?ns=docker.io"}, {"HEAD", "/v2/nginx/manifests/1.0"},
		{"GET", "/v2/nginx/blobs/" + string(sum("the layer"))}, {"POST", "/v2/nginx/blobs/uploads/"}, {"POST", "/v2/nginx/blobs/uploads/?digest=" + string(sum("evil"))},
		{"PUT", "/v2/nginx/manifests/1.0"}, {"DELETE", "/v2/nginx/manifests/1.0"}, {"GET", "/"},
	}
	basic := func(user, password string) string {
		r, _ := http.NewRequest("GET", "/", nil)
		r.SetBasicAuth(user, password)
		return r.Header.Get("Authorization")
	}
	for _, r := range requests {
		for _, authorization := range []string{"", "Basic", "Basic !", "Bearer " + password, basic(user, ""), basic("", password), basic(user, password+"x"), basic("admin", password)} {
			a := c.do(r[0], r[1], "evil", "Authorization", authorization)
			if a.code != 401 || !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Basic ") {
				t.Errorf("%s %s with %q: %d %v", r[0], r[1], authorization, a.code, a.header)
			}
		}
	}
	c.wants(200, m, "GET", "/v2/nginx/manifests/1.0", "")
	if blobs := s.blobs(t); len(blobs) != 3 {
		t.Errorf("%d blobs are there", len(blobs))
	}
}

// A web page that has a browser come here by a name of its own (DNS rebinding) is not answered, whatever it knows.
func TestHostIsChecked(t *testing.T) {
	_, c := startRegistry(t)
	at := strings.TrimPrefix(c.url, "https://")
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{at, "localhost:" + port, "LocalHost:" + port, "[::ffff:127.0.0.1]:" + port} {
		c.wants(200, "{}", "GET", "/v2/", "", "Host", host)
	}
	for _, host := range []string{"evil.example", "evil.example:" + port, "127.0.0.1", "localhost", "127.0.0.1:1", "127.0.0.2:" + port, "docker.io"} {
		c.wants(421, "DENIED", "GET", "/v2/", "", "Host", host)
		c.wants(421, "DENIED", "POST", "/v2/nginx/blobs/uploads/", "", "Host", host)
	}
}

// Nothing is answered without TLS, and a client that trusts others does not believe the registry.
func TestOnlyTLS(t *testing.T) {
	_, c := startRegistry(t)
	resp, err := http.Get(strings.Replace(c.url, "https", "http", 1) + "/v2/")
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("plain HTTP is answered with %s", resp.Status)
		}
	}
	if resp, err := http.Get(c.url + "/v2/"); err == nil {
		resp.Body.Close()
		t.Error("a client that does not know the authority believes the registry")
	}
}

// Connections are bounded, and those that end make room.
func TestConnectionsAreBounded(t *testing.T) {
	_, c := startRegistry(t)
	at := strings.TrimPrefix(c.url, "https://")
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			conn.Close()
		}
	}()
	for range maxConnections {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	// The server closes a further connection without a handshake.
	config := c.http.Transport.(*http.Transport).TLSClientConfig
	if conn, err := tls.Dial("tcp", at, config); err == nil {
		conn.Close()
		t.Errorf("more than %d connections", maxConnections)
	}
	for _, conn := range open {
		conn.Close()
	}
	open = nil
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := tls.Dial("tcp", at, config)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("connections that ended are in the way: %v", err)
		}
	}
}

// A client that stops sending a body, or sends it a byte at a time, loses its upload; a connection that rests between requests is not ended by them.
func TestRequestsHaveDeadlines(t *testing.T) {
	const short, long = 100 * time.Millisecond, time.Hour
	for name, l := range map[string]limits{"stalls": {short, long, long, short}, "trickles": {long, short, long, short}} {
		t.Run(name, func(t *testing.T) {
			s, c := startRegistryWith(t, l)
			at := c.wants(202, "", "POST", "/v2/a/blobs/uploads/", "").header.Get("Location")
			conn := c.send("PATCH " + at + " HTTP/1.1\r\nContent-Length: 100000\r\n\r\na beginning")
			ended := make(chan error, 1)
			go func() {
				for {
					if _, err := conn.Write([]byte("x")); err != nil || name == "stalls" {
						ended <- err
						return
					}
					time.Sleep(short / 10)
				}
			}()
			conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			answer, err := io.ReadAll(conn)
			if err != nil && !strings.Contains(err.Error(), "reset") || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
				t.Errorf("answered %q, %v", answer, err)
			}
			<-ended
			c.wants(404, "BLOB_UPLOAD_UNKNOWN", "GET", at, "")
			if parts, err := os.ReadDir(s.partDir()); err != nil || len(parts) > 0 {
				t.Errorf("the upload is left: %v, %v", parts, err)
			}
		})
	}
	t.Run("rests", func(t *testing.T) {
		_, c := startRegistryWith(t, limits{short, long, short, short})
		c.pushImage("nginx", "1.0", "the layer")
		at := c.wants(202, "", "POST", "/v2/a/blobs/uploads/", "").header.Get("Location")
		conn := c.send("PATCH " + at + " HTTP/1.1\r\nContent-Length: 5\r\n\r\nlayer")
		from := bufio.NewReader(conn)
		for i := range 3 {
			conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			resp, err := http.ReadResponse(from, nil)
			if err != nil || resp.StatusCode/100 != 2 {
				t.Fatalf("request %d: %v, %v", i, resp, err)
			}
			resp.Body.Close()
			time.Sleep(2 * short) // longer than any deadline of the request before
			if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Basic %s\r\n\r\n", at, conn.RemoteAddr(),
				base64.StdEncoding.EncodeToString([]byte(user+":"+password))); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A client that does not receive a response is not waited for.
func TestResponsesHaveDeadlines(t *testing.T) {
	s, c := startRegistryWith(t, limits{time.Hour, time.Hour, 100 * time.Millisecond, time.Hour})
	layer := strings.Repeat("a layer that no buffer of a socket holds ", 1<<20)
	d := c.pushBlob("nginx", layer)
	conn := c.send("GET /v2/nginx/blobs/" + string(d) + " HTTP/1.1\r\n\r\n")
	time.Sleep(time.Second) // the buffers fill, and the deadline passes
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := io.Copy(io.Discard, conn); n >= int64(len(layer)) {
		t.Errorf("received %d bytes, %v", n, err)
	}
	if blobs := s.blobs(t); len(blobs) != 1 {
		t.Errorf("%d blobs are there", len(blobs))
	}
}
