package userspace

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"skiff/internal/network/proxy/model"
)

// answering returns the address of a UDP server that answers with its name and the packet.
func answering(t *testing.T, name string) (netip.AddrPort, func()) {
	t.Helper()
	conn, err := net.ListenPacket("udp4", nodeIP+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		b := make([]byte, 64<<10)
		for {
			k, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(append([]byte(name), b[:k]...), from)
		}
	}()
	return unmapped(conn.LocalAddr()), func() { conn.Close() }
}

// client is a UDP client.
type client struct {
	t    *testing.T
	conn net.Conn
}

func newClient(t *testing.T, at string) *client {
	t.Helper()
	conn, err := net.Dial("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t, conn}
}

func (c *client) ask(question string, limit time.Duration) (string, error) {
	c.t.Helper()
	_ = c.conn.SetDeadline(time.Now().Add(limit))
	if _, err := c.conn.Write([]byte(question)); err != nil {
		return "", err
	}
	b := make([]byte, 64<<10)
	k, err := c.conn.Read(b)
	return string(b[:k]), err
}

func (c *client) expect(want string) {
	c.t.Helper()
	if got, err := c.ask("", testTimeout); err != nil || got != want {
		c.t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// TestSenders: senders get endpoints in turn; each keeps its endpoint while it sends, whatever the size of its packets, and gets another when that one is removed.
func TestSenders(t *testing.T) {
	n := newNode(t, nil)
	a, closeA := answering(t, "a")
	b, _ := answering(t, "b")
	at := n.service(model.UDP, 0, a, b)
	first, second := newClient(t, at), newClient(t, at)
	who, err := first.ask("", testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	other := map[string]string{"a": "b", "b": "a"}[who]
	for range 3 {
		first.expect(who)
		second.expect(other)
	}
	large := string(make([]byte, 9000))
	if got, err := first.ask(large, testTimeout); err != nil || got != who+large {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	closeA()
	eventually(t, "both are with the one that is left", func() bool {
		one, _ := first.ask("", 100*time.Millisecond)
		two, _ := second.ask("", 100*time.Millisecond)
		return one == "b" && two == "b"
	})
	c, _ := answering(t, "c")
	n.service(model.UDP, 0, c) // the other two no longer serve
	first.expect("c")
	second.expect("c")
}

// TestSenderLimit: packets of senders beyond the limit are dropped; idle senders make room.
func TestSenderLimit(t *testing.T) {
	n := newNode(t, func(l *Limits) { l.Senders = 2 })
	a, _ := answering(t, "a")
	at := n.service(model.UDP, 0, a)
	first, second, third := newClient(t, at), newClient(t, at), newClient(t, at)
	first.expect("a")
	second.expect("a")
	if got, err := third.ask("", 100*time.Millisecond); err == nil {
		t.Errorf("one too many: %q", got)
	}
	first.expect("a")

	limits := n.mode.limits
	limits.SenderIdle = 200 * time.Millisecond
	if err := n.mode.Close(); err != nil {
		t.Fatal(err)
	}
	n.start(limits)
	for _, c := range []*client{first, second, third, first} {
		eventually(t, "idle senders make room", func() bool {
			got, _ := c.ask("", 50*time.Millisecond)
			return got == "a"
		})
	}
	eventually(t, "all are idle", func() bool { return len(n.mode.senders) == 0 })
	relay := n.pool(model.UDP).udp
	relay.mu.Lock()
	defer relay.mu.Unlock()
	if len(relay.senders) != 0 {
		t.Errorf("%d are remembered", len(relay.senders))
	}
}

// TestSendersUnderChange: many concurrent senders while endpoints change: all are answered in the end.
func TestSendersUnderChange(t *testing.T) {
	n := newNode(t, nil)
	a, _ := answering(t, "a")
	b, _ := answering(t, "b")
	at := n.service(model.UDP, 0, a)
	done, stop := make(chan error), make(chan struct{})
	for i := range 8 {
		c := newClient(t, at)
		go func() {
			for {
				select {
				case <-stop:
					got, err := c.ask("?", testTimeout)
					for b := make([]byte, 8); err == nil && got != "b?"; { // answers to earlier packets
						var k int
						k, err = c.conn.Read(b)
						got = string(b[:k])
					}
					if err != nil {
						err = fmt.Errorf("client %d: %w", i, err)
					}
					done <- err
					return
				default:
					_, _ = c.ask("!", 5*time.Millisecond)
				}
			}
		}()
	}
	for i := range 20 {
		n.service(model.UDP, 0, [][]netip.AddrPort{{a}, {b}, {a, b}}[i%3]...)
	}
	n.service(model.UDP, 0, b)
	close(stop)
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
