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

// Host is a network namespace with clients and servers. The node is the namespace that the test itself runs in.
type Host struct{ networktest.Namespace }

func newHost(t *testing.T, name string) *Host { return &Host{*networktest.New(t, name)} }

// link connects the node with a host; addresses are in CIDR notation.
func link(t *testing.T, name string, to *Host, node, far []string) {
	t.Helper()
	here := &networktest.Namespace{}
	networktest.Link(t, here, &to.Namespace, name, "eth0", 0)
	t.Cleanup(func() { // the kernel would remove it with the namespace, but only some time later
		if l, err := netlink.LinkByName(name); err == nil {
			_ = netlink.LinkDel(l)
		}
	})
	here.Up(t, name, node...)
	to.Up(t, "eth0", far...)
}

// serve answers on a TCP and UDP port with the host's name and the source address that it sees. Each line on a TCP connection is answered in the
// same way. UDP is served on the given addresses only, so that answers come from them and not from another address of the host.
func (p *Host) serve(t *testing.T, port uint16, addresses ...string) {
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

func (p *Host) answer(from net.Addr) string {
	return p.Name + " " + netip.MustParseAddrPort(from.String()).Addr().Unmap().WithZone("").String() + "\n"
}

// Answer is the name of the host that answered and the source address that it saw.
type Answer struct {
	Who  string
	From netip.Addr
}

// answerTimeout bounds the wait for an answer; without an answer within dropTimeout a packet counts as dropped.
const (
	answerTimeout = 5 * time.Second
	dropTimeout   = 150 * time.Millisecond
)

// Dial connects from the host. limit bounds connecting and everything that is done with the connection.
func (p *Host) Dial(network, address string, limit time.Duration) (conn net.Conn, err error) {
	return p.dialFrom(network, "", address, limit)
}

func (p *Host) dialFrom(network, local, address string, limit time.Duration) (conn net.Conn, err error) {
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

// Ask connects to an address and returns the answer.
func (p *Host) Ask(network, address string, limit time.Duration) (Answer, error) {
	return p.askFrom(network, "", address, limit)
}

func (p *Host) askFrom(network, local, address string, limit time.Duration) (Answer, error) {
	conn, err := p.dialFrom(network, local, address, limit)
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close()
	return AskOn(conn)
}

// AskOn asks again on an open connection.
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
