package userspace

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skiff/internal/network/proxy/model"
)

// TestRoundRobin: endpoints are selected in turn, not at random.
func TestRoundRobin(t *testing.T) {
	n := newNode(t, nil)
	at := n.service(model.TCP, 0, named(t, "a"), named(t, "b"), named(t, "c"))
	var got strings.Builder
	for range 9 {
		who, err := ask(t, at)
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString(who)
	}
	if !strings.Contains("abcabcabcabc", got.String()) && !strings.Contains("acbacbacbacb", got.String()) {
		t.Errorf("in turn: %s", got.String())
	}
}

// TestNextEndpoint: an endpoint that does not answer is no answer: the next one is asked, with more testTimeout each time.
func TestNextEndpoint(t *testing.T) {
	n := newNode(t, nil)
	silent := netip.MustParseAddrPort("198.18.0.1:80") // packets to it are lost
	at := n.service(model.TCP, 0, nobody(t), silent, nobody(t), nobody(t), nobody(t), nobody(t), named(t, "a"))
	for range 4 {
		if who, err := ask(t, at); err != nil || who != "a" {
			t.Fatalf("%q, %v", who, err)
		}
	}
	// A client whose endpoint is unreachable gets another one, and keeps it.
	at = n.service(model.TCP, time.Hour, nobody(t), named(t, "b"), named(t, "c"))
	first, err := ask(t, at)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if who, err := ask(t, at); err != nil || who != first {
			t.Fatalf("%q, %v, first it was %s", who, err, first)
		}
	}
	// If no endpoint answers the connection is reset, in bounded time.
	at = n.service(model.TCP, 0, nobody(t), silent)
	start := time.Now()
	if who, err := ask(t, at); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%q, %v", who, err)
	}
	if took := time.Since(start); took > testTimeout/2 {
		t.Errorf("after %s", took)
	}
}

// TestHalfClose: a side that has closed its direction still receives from the other, either way round.
func TestHalfClose(t *testing.T) {
	n := newNode(t, nil)
	at := n.service(model.TCP, 0, endpoint(t, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c) // until the client has closed
		_, _ = c.Write(bytes.ToUpper(b))
	}))
	conn := dial(t, at)
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); err != nil || string(b) != "HELLO" {
		t.Errorf("%q, %v", b, err)
	}

	heard := make(chan string, 1)
	at = n.service(model.TCP, 0, endpoint(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "over to you")
		_ = c.CloseWrite()
		b, _ := io.ReadAll(c)
		heard <- string(b)
	}))
	conn = dial(t, at)
	if b, err := io.ReadAll(conn); err != nil || string(b) != "over to you" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := io.WriteString(conn, "thanks"); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if got := <-heard; got != "thanks" {
		t.Errorf("%q", got)
	}
}

// TestReset: a connection that is reset is not passed on as a normal end.
func TestReset(t *testing.T) {
	n := newNode(t, nil)
	at := n.service(model.TCP, 0, endpoint(t, func(c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		reset(c)
	}))
	conn := dial(t, at)
	if _, err := io.WriteString(conn, "?"); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%q, %v", b, err)
	}
}

// TestBulk: all data arrives, in both directions at once.
func TestBulk(t *testing.T) {
	n := newNode(t, nil)
	at := n.service(model.TCP, 0, endpoint(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }))
	var wg sync.WaitGroup
	for seed := range uint64(4) {
		conn := dial(t, at)
		wg.Go(func() {
			const size = 4 << 20
			sent, got := sha256.New(), sha256.New()
			go func() {
				_, _ = io.CopyN(io.MultiWriter(conn, sent), rand.NewChaCha8([32]byte{byte(seed)}), size)
				_ = conn.CloseWrite()
			}()
			if k, err := io.Copy(got, conn); err != nil || k != size || !bytes.Equal(got.Sum(nil), sent.Sum(nil)) {
				t.Errorf("%d bytes, %v", k, err)
			}
		})
	}
	wg.Wait()
	eventually(t, "all connections are over", func() bool { return len(n.mode.connections) == 0 })
}

// TestIdle: an idle connection is closed; one with data in one direction goes on.
func TestIdle(t *testing.T) {
	const idle = 400 * time.Millisecond
	n := newNode(t, func(l *Limits) { l.Idle, l.HalfClosed = idle, idle/2 })
	hold := make(chan struct{})
	defer close(hold)
	at := n.service(model.TCP, 0, endpoint(t, func(c *net.TCPConn) {
		b := make([]byte, 1)
		_, _ = io.ReadFull(c, b)
		for range int(b[0]) { // sends without receiving
			if _, err := c.Write(b); err != nil {
				return
			}
			time.Sleep(idle / 20)
		}
		if _, err := io.ReadFull(c, b); errors.Is(err, io.EOF) {
			<-hold // sends no more, without closing
		}
	}))
	silent, busy := dial(t, at), dial(t, at)
	_, _ = silent.Write([]byte{0})
	_, _ = busy.Write([]byte{80}) // for four times as long as it may be idle
	if k, err := io.ReadFull(busy, make([]byte, 80)); err != nil {
		t.Errorf("%d times, then %v", k, err)
	}
	for _, conn := range []net.Conn{silent, busy} {
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("an idle connection: %v", err)
		}
	}
	half := dial(t, at)
	_, _ = half.Write([]byte{0})
	eventually(t, "there is a connection", func() bool { return len(n.mode.connections) == 1 })
	start := time.Now()
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it ends", func() bool { return len(n.mode.connections) == 0 })
	if took := time.Since(start); took < idle/4 {
		t.Errorf("after %s", took)
	}
}

// TestConnectionLimit: connections beyond the limit are refused, and the open ones go on.
func TestConnectionLimit(t *testing.T) {
	n := newNode(t, func(l *Limits) { l.Connections = 2 })
	at := n.service(model.TCP, 0, endpoint(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }))
	echo := func(c net.Conn) error {
		if _, err := c.Write([]byte{1}); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	one, two := dial(t, at), dial(t, at)
	if err := errors.Join(echo(one), echo(two)); err != nil {
		t.Fatal(err)
	}
	third, err := net.DialTimeout("tcp", at, testTimeout) // it may be reset before this returns
	if err == nil {
		err = echo(third)
		third.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the third one: %v", err)
	}
	if err := errors.Join(echo(one), echo(two)); err != nil {
		t.Error(err)
	}
	one.Close()
	eventually(t, "there is room again", func() bool { return len(n.mode.connections) == 1 })
	if err := echo(dial(t, at)); err != nil {
		t.Error(err)
	}
}

// TestListeners: a listener can be reached only through the Service. After a restart it has the same port, so that the old rules lead to it.
func TestListeners(t *testing.T) {
	n := newNode(t, nil)
	a, b := named(t, "a"), named(t, "b")
	at := n.service(model.TCP, 0, a)
	n.service(model.UDP, 0, a)
	listener := n.pool(model.TCP).at
	if conn, err := net.DialTimeout("tcp", listener.String(), testTimeout); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("straight to the listener: %v, %v", conn, err)
	}
	conn, err := net.Dial("udp", n.pool(model.UDP).at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	_, _ = conn.Write([]byte("?"))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("straight to the listener of UDP: %v", err)
	}
	n.service(model.TCP, 0, a, b)
	if n.pool(model.TCP).at != listener {
		t.Error("another endpoint, another listener")
	}
	limits := n.mode.limits
	if err := n.mode.Close(); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.DialTimeout("tcp", at, testTimeout); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("while there is no proxy: %v, %v", conn, err)
	}
	n.start(limits)
	if got := n.pool(model.TCP).at; got != listener {
		t.Errorf("at %s, before the restart at %s", got, listener)
	}
	if who, err := ask(t, at); err != nil || who != "a" && who != "b" {
		t.Error(who, err)
	}
	n.service(model.TCP, 0)
	if n.pool(model.TCP) != nil {
		t.Error("a listener for no endpoints")
	}
	if conn, err := net.DialTimeout("tcp", at, testTimeout); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without endpoints: %v, %v", conn, err)
	}
}
