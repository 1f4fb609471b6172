// Package networktest makes network namespaces for tests with real packets.
package networktest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Place is a network namespace, which lasts as long as the test. Threads enter it to work there. The zero Place is the one that the test itself is in.
type Place struct {
	Name string
	FD   int // of the namespace; 0 for the test's own
}

// New makes a namespace with nothing in it but a loopback link that is up.
func New(t testing.TB, name string) *Place {
	t.Helper()
	p := &Place{Name: name}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine: nobody else may run in it
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			p.FD, err = unix.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		ready <- err
	}()
	if err := <-ready; err != nil {
		t.Fatalf("a network namespace (are you root?): %v", err)
	}
	t.Cleanup(func() { unix.Close(p.FD) })
	p.Must(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		// Addresses are not first looked for elsewhere, which takes a second.
		return errors.Join(netlink.LinkSetUp(lo), Sysctl("net/ipv6/conf/default/accept_dad", "0"))
	})
	return p
}

// Do runs something in the namespace. Sockets that it opens stay there; goroutines that it starts run in the test's own.
func (p *Place) Do(f func() error) error {
	if p.FD == 0 {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if err := unix.Setns(p.FD, unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// Must is Do for what a test cannot do without.
func (p *Place) Must(t testing.TB, f func() error) {
	t.Helper()
	if err := p.Do(f); err != nil {
		t.Fatalf("in %s: %v", p.Name, err)
	}
}

// Link makes a pair of links, which are still down. An mtu of 0 is the kernel's default.
func Link(t testing.TB, a, b *Place, nameA, nameB string, mtu int) {
	t.Helper()
	a.Must(t, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: nameA, MTU: mtu}, PeerName: nameB, PeerMTU: uint32(mtu), PeerNamespace: netlink.NsFd(b.FD)})
	})
}

// Up gives a link addresses, in CIDR notation, and sets it up.
func (p *Place) Up(t testing.TB, name string, addresses ...string) {
	t.Helper()
	p.Address(t, name, addresses...)
	p.Must(t, func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(l)
	})
}

// Address gives a link addresses, in CIDR notation.
func (p *Place) Address(t testing.TB, name string, addresses ...string) {
	t.Helper()
	p.Must(t, func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		for _, text := range addresses {
			a, err := netlink.ParseAddr(text)
			if err != nil {
				return err
			}
			a.Flags = unix.IFA_F_NODAD
			if err := netlink.AddrAdd(l, a); err != nil {
				return err
			}
		}
		return nil
	})
}

// Route adds a route, by way of an address or straight to a link.
func (p *Place) Route(t testing.TB, to, via, link string) {
	t.Helper()
	p.Must(t, func() error {
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

// Sysctl sets a kernel parameter of the namespace that the calling thread is in.
func Sysctl(name, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644)
}
