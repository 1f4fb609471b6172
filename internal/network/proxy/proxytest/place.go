//go:build linux

package proxytest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Place is a network namespace: a thread that stays in it and runs what it is given. The node is the one that has none: all threads are there.
type Place struct {
	Name string
	work chan func()
	fd   int
}

func newPlace(t *testing.T, name string) *Place {
	t.Helper()
	p := &Place{Name: name, work: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine: nobody else may run in it
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			p.fd, err = unix.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		ready <- err
		for f := range p.work {
			f()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatalf("a network namespace (are you root?): %v", err)
	}
	t.Cleanup(func() { close(p.work); unix.Close(p.fd) })
	p.must(t, func() error {
		lo, err := netlink.LinkByName("lo")
		return errors.Join(err, netlink.LinkSetUp(lo), sysctl("net/ipv6/conf/default/accept_dad", "0"))
	})
	return p
}

// Do runs something in the namespace.
func (p *Place) Do(f func() error) error {
	if p.work == nil {
		return f()
	}
	done := make(chan error)
	p.work <- func() { done <- f() }
	return <-done
}

func (p *Place) must(t *testing.T, f func() error) {
	t.Helper()
	if err := p.Do(f); err != nil {
		t.Fatalf("in %s: %v", p.Name, err)
	}
}

// link connects the node with a place; addresses are in CIDR notation, by family alike at both ends.
func link(t *testing.T, name string, to *Place, node, far []string) {
	t.Helper()
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(to.fd)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // with its namespace it would go some time later
		if l, err := netlink.LinkByName(name); err == nil {
			_ = netlink.LinkDel(l)
		}
	})
	up := func(name string, addresses []string) error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		for _, a := range addresses {
			ip, err := netlink.ParseAddr(a)
			if err != nil {
				return err
			}
			ip.Flags = unix.IFA_F_NODAD
			if err := netlink.AddrAdd(l, ip); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(l)
	}
	if err := up(name, node); err != nil {
		t.Fatal(err)
	}
	to.must(t, func() error { return up("eth0", far) })
}

func (p *Place) route(t *testing.T, to, via, link string) {
	t.Helper()
	p.must(t, func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		r := &netlink.Route{LinkIndex: l.Attrs().Index}
		if _, r.Dst, err = net.ParseCIDR(to); err != nil {
			return err
		}
		if via != "" {
			r.Gw = net.ParseIP(via)
		} else {
			r.Scope = netlink.SCOPE_LINK
		}
		return netlink.RouteAdd(r)
	})
}

// serve answers at a port, by TCP and UDP, with the place's name and the address that it sees. A line that a client of TCP sends is answered
// in the same way, for as long as it likes. Packets are answered at given addresses: a place may have others, and would answer from one of them.
func (p *Place) serve(t *testing.T, port uint16, addresses ...string) {
	t.Helper()
	p.must(t, func() error {
		for _, a := range addresses {
			packets, err := net.ListenPacket("udp", net.JoinHostPort(a, fmt.Sprint(port)))
			if err != nil {
				return err
			}
			t.Cleanup(func() { packets.Close() })
			go p.answerPackets(packets)
		}
		l, err := net.Listen("tcp", fmt.Sprint(":", port))
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					lines := bufio.NewReader(conn)
					for {
						if _, err := lines.ReadString('\n'); err != nil {
							return
						}
						if _, err := io.WriteString(conn, p.answer(conn.RemoteAddr())); err != nil {
							return
						}
					}
				}()
			}
		}()
		return nil
	})
}

func (p *Place) answerPackets(conn net.PacketConn) {
	buf := make([]byte, 64)
	for {
		_, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = conn.WriteTo([]byte(p.answer(from)), from)
	}
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

func sysctl(path, value string) error { return os.WriteFile("/proc/sys/"+path, []byte(value), 0o644) }
