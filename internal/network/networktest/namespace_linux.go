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

// Namespace is a network namespace that lasts as long as the test. The zero Namespace is the one that the test itself runs in.
type Namespace struct {
	Name string
	FD   int // the file descriptor of the namespace; 0 for the test's own
}

// New creates a namespace with nothing in it but a loopback link that is up.
func New(t testing.TB, name string) *Namespace {
	t.Helper()
	n := &Namespace{Name: name}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, so that no other goroutine runs in the namespace
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.FD, err = unix.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		ready <- err
	}()
	if err := <-ready; err != nil {
		t.Fatalf("failed to create a network namespace (run the test as root): %v", err)
	}
	t.Cleanup(func() { unix.Close(n.FD) })
	n.Must(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		// Duplicate address detection would keep addresses from being used for a second.
		return errors.Join(netlink.LinkSetUp(lo), Sysctl("net/ipv6/conf/default/accept_dad", "0"))
	})
	return n
}

// Do calls f on a thread in the namespace. Sockets that f opens stay in the namespace; goroutines that it starts run in the test's own.
func (n *Namespace) Do(f func() error) error {
	if n.FD == 0 {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if err := unix.Setns(n.FD, unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// Must calls f like Do, and fails the test if f fails.
func (n *Namespace) Must(t testing.TB, f func() error) {
	t.Helper()
	if err := n.Do(f); err != nil {
		t.Fatalf("in %s: %v", n.Name, err)
	}
}

// Link connects two namespaces by a veth pair, whose ends are still down. An mtu of 0 is the kernel's default.
func Link(t testing.TB, a, b *Namespace, nameA, nameB string, mtu int) {
	t.Helper()
	a.Must(t, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: nameA, MTU: mtu}, PeerName: nameB, PeerMTU: uint32(mtu), PeerNamespace: netlink.NsFd(b.FD)})
	})
}

// Up adds addresses, in CIDR notation, to a link and sets it up.
func (n *Namespace) Up(t testing.TB, name string, addresses ...string) {
	t.Helper()
	n.Address(t, name, addresses...)
	n.Must(t, func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(l)
	})
}

// Address adds addresses, in CIDR notation, to a link.
func (n *Namespace) Address(t testing.TB, name string, addresses ...string) {
	t.Helper()
	n.Must(t, func() error {
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

// Route adds a route through a gateway or, if via is empty, directly to a link.
func (n *Namespace) Route(t testing.TB, to, via, link string) {
	t.Helper()
	n.Must(t, func() error {
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

// Sysctl sets a kernel parameter in the network namespace of the calling thread.
func Sysctl(name, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644)
}
