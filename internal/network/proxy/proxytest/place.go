//go:build linux

package proxytest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"skiff/internal/network/networktest"
)

// Place is a network namespace in which somebody asks and answers. The node is the one that the test itself is in: all threads are there.
type Place struct{ networktest.Place }

func newPlace(t *testing.T, name string) *Place { return &Place{*networktest.New(t, name)} }

// link connects the node with a place; addresses are in CIDR notation, by family alike at both ends.
func link(t *testing.T, name string, to *Place, node, far []string) {
	t.Helper()
	here := &networktest.Place{}
	networktest.Link(t, here, &to.Place, name, "eth0", 0)
	t.Cleanup(func() { // with its namespace it would go some time later
		if l, err := netlink.LinkByName(name); err == nil {
			_ = netlink.LinkDel(l)
		}
	})
	here.Up(t, name, node...)
	to.Up(t, "eth0", far...)
}

// serve answers at a port, by TCP and UDP, with the place's name and the address that it sees. A line that a client of TCP sends is answered
// in the same way, for as long as it likes. Packets are answered at given addresses: a place may have others, and would answer from one of them.
func (p *Place) serve(t *testing.T, port uint16, addresses ...string) {
	t.Helper()
	for _, a := range addresses {
		p.ServePackets(t, "udp", net.JoinHostPort(a, fmt.Sprint(port)), func(_ []byte, from net.Addr) []byte { return []byte(p.answer(from)) })
	}
	p.Serve(t, "tcp", fmt.Sprint(":", port), func(conn net.Conn) {
		lines := bufio.NewReader(conn)
		for {
			if _, err := lines.ReadString('\n'); err != nil {
				return
			}
			if _, err := io.WriteString(conn, p.answer(conn.RemoteAddr())); err != nil {
				return
			}
		}
	})
}

func (p *Place) answer(from net.Addr) string {
	return p.Name + " " + netip.MustParseAddrPort(from.String()).Addr().Unmap().WithZone("").String() + "\n"
}

// Answer is who answered and which sender it saw.
type Answer struct {
	Who  string
	From netip.Addr
}

// patience is how long an answer may take; silence is how long nothing must come for a packet to count as dropped.
const (
	patience = 5 * time.Second
	silence  = 150 * time.Millisecond
)

// Dial connects from a place, with a time limit for that and for all that is done with the connection.
func (p *Place) Dial(network, address string, limit time.Duration) (conn net.Conn, err error) {
	return p.dialFrom(network, "", address, limit)
}

func (p *Place) dialFrom(network, local, address string, limit time.Duration) (conn net.Conn, err error) {
	err = p.Do(func() error {
		d := net.Dialer{Timeout: limit}
		if local != "" {
			from, err := net.ResolveUDPAddr(network, local)
			if err != nil {
				return err
			}
			d.LocalAddr = from
		}
		conn, err = d.Dial(network, address)
		if err != nil {
			return err
		}
		return conn.SetDeadline(time.Now().Add(limit))
	})
	return conn, err
}

// Ask asks who answers at an address.
func (p *Place) Ask(network, address string, limit time.Duration) (Answer, error) {
	return p.askFrom(network, "", address, limit)
}

func (p *Place) askFrom(network, local, address string, limit time.Duration) (Answer, error) {
	conn, err := p.dialFrom(network, local, address, limit)
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close()
	return AskOn(conn)
}

// AskOn asks on a connection that there is.
func AskOn(conn net.Conn) (Answer, error) {
	if _, err := io.WriteString(conn, "?\n"); err != nil {
		return Answer{}, err
	}
	buf := make([]byte, 128)
	n, err := conn.Read(buf)
	if err != nil {
		return Answer{}, err
	}
	who, from, _ := strings.Cut(strings.TrimSpace(string(buf[:n])), " ")
	a, err := netip.ParseAddr(from)
	return Answer{who, a}, err
}
