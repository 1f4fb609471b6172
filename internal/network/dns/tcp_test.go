package dns

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"skiff/internal/apitest"
)

func dialTCP(t testing.TB, server netip.AddrPort) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", server.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(testTimeout))
	return conn
}

func frame(t testing.TB, id int, question string) []byte {
	packet, _ := packetOf(t, question)
	binary.BigEndian.PutUint16(packet, uint16(id))
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)
}

// TestPipelining sends queries without waiting for answers: those about the cluster do not wait for forwarded ones.
func TestPipelining(t *testing.T) {
	external := startUpstream(t)
	release := make(chan struct{})
	external.set(func([]byte) ([]byte, bool) { <-release; return nil, false })
	_, server := serveWithTimeouts(t, testTimeout, testTimeout, external.addr)
	conn := dialTCP(t, server)
	var all []byte
	for i := range 20 {
		all = append(all, frame(t, i, "www.example.com. A")...)
	}
	for i := range 100 {
		all = append(all, frame(t, 100+i, "kubernetes.default.svc.cluster.local. A")...)
	}
	go func() {
		for part := all; len(part) > 0; part = part[min(len(part), 7):] { // in small pieces
			conn.Write(part[:min(len(part), 7)])
		}
	}()
	got := map[int]bool{}
	read := func(n int, want string) {
		t.Helper()
		for range n {
			answer, err := readFrame(conn)
			if err != nil {
				t.Fatal(err)
			}
			id := int(binary.BigEndian.Uint16(answer))
			binary.BigEndian.PutUint16(answer, 0x1234)
			if text := textOf(answer); !strings.Contains(text, want) || got[id] {
				t.Errorf("%d: %s", id, text)
			}
			got[id] = true
		}
	}
	read(100, "10.43.0.1")
	close(release)
	read(20, "192.0.2.80")
	if len(got) != 120 {
		t.Errorf("%d answers", len(got))
	}
}

// TestConnectionsAreBounded: idle connections, and those that send half a query or something malformed, are closed.
func TestConnectionsAreBounded(t *testing.T) {
	const idle = 300 * time.Millisecond
	server := serve(t, asNode(apitest.Start(t)), func(s *Server) { s.idleTimeout = idle }).Addresses()[0]
	for name, say := range map[string][]byte{
		"nothing": nil, "a part of a length": {0}, "a part of a question": frame(t, 1, "cluster.local. A")[:20], "too much": {0xFF, 0xFF}, "no header": {0, 3, 1, 2, 3},
		"an answer": {0, 12, 0, 0, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0},
	} {
		conn := dialTCP(t, server)
		conn.Write(say)
		if rest, err := io.ReadAll(conn); len(rest) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: %q %v", name, rest, err)
		}
	}
	// The idle timeout starts again after each query.
	conn := dialTCP(t, server)
	for i := range 4 {
		time.Sleep(idle / 2)
		conn.Write(frame(t, i, "kubernetes.default.svc.cluster.local. A"))
		if _, err := readFrame(conn); err != nil {
			t.Fatal(err)
		}
	}
}

func TestClientsAreBounded(t *testing.T) {
	server := serve(t, asNode(apitest.Start(t)), func(s *Server) { s.idleTimeout = testTimeout }).Addresses()[0]
	var held []net.Conn
	for range maxConnectionsPerClient {
		held = append(held, dialTCP(t, server))
	}
	eventually(t, func() string {
		extra, err := net.Dial("tcp", server.String())
		if err != nil {
			return err.Error()
		}
		defer extra.Close()
		extra.SetDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := extra.Read(make([]byte, 1)); err != io.EOF {
			return fmt.Sprint("one client can have any number of connections: ", err)
		}
		return ""
	})
	if text := answerText(t, server, "kubernetes.default.svc.cluster.local. A"); !strings.HasPrefix(text, "Success") {
		t.Error(text)
	}
	for _, conn := range held {
		conn.Close()
	}
	packet, _ := packetOf(t, "kubernetes.default.svc.cluster.local. A")
	eventually(t, func() string {
		if _, err := exchangePacket(server, packet, true); err != nil {
			return "room for others: " + err.Error()
		}
		return ""
	})
}
