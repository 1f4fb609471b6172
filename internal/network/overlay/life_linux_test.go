package overlay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNodesComeAndGo: a deleted node is removed within a second; one that comes back with another address is reached there. Clean leaves nothing.
func TestNodesComeAndGo(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{VXLAN, HostGW, UDP} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			w := newTestCluster(t, 1500)
			a, b, c := w.add(1), w.add(2), w.add(3)
			before := a.everything(t)
			for _, m := range []*machine{a, b, c} {
				m.join(backend, m.ip4, m.ip6)
			}
			a.pod.reaches(t, b.podIP(false), a.podIP(false))
			a.pod.reaches(t, c.podIP(true), a.podIP(true))
			start := time.Now()
			w.delete(b)
			a.without(t, "10.42.2.0/24")
			c.without(t, "fd42:0:0:2::/64")
			took := time.Since(start)
			t.Logf("it took %v to forget a node", took)
			if took > 5*time.Second { // it takes a few milliseconds; test machines can be slow
				t.Error("that is too long")
			}
			b.stop()
			a.pod.reaches(t, c.podIP(false), a.podIP(false))

			// The machine gets another address and is registered again.
			b.renumber(t, "192.0.2.77")
			b.register(b.ip4, b.ip6)
			b.start(backend)
			a.pod.reaches(t, b.podIP(false), a.podIP(false))
			b.pod.reaches(t, c.podIP(true), b.podIP(true))

			// Its address changes while it runs.
			b.renumber(t, "192.0.2.78")
			w.setAddresses(b, b.ip4, b.ip6)
			a.pod.reaches(t, b.podIP(false), a.podIP(false))

			a.stop()
			for range 2 { // cleaning twice is not an error
				a.Must(t, Clean)
			}
			a.Must(t, func() error { veth, err := netlink.LinkByName("veth0"); return errors.Join(err, netlink.LinkDel(veth)) })
			if after := a.everything(t); !slices.Equal(before, after) {
				t.Errorf("before:\n%s\nafter Clean:\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			}
		})
	}
}

// renumber gives the machine another address.
func (m *machine) renumber(t testing.TB, to string) {
	t.Helper()
	m.Must(t, func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		old, err := netlink.ParseAddr(m.ip4 + "/24")
		return errors.Join(err, netlink.AddrDel(eth0, old))
	})
	m.ip4 = to
	m.Address(t, "eth0", to+"/24")
}

func (w *testCluster) delete(m *machine) {
	w.t.Helper()
	if err := w.server.Client().CoreV1().Nodes().Delete(context.Background(), m.Name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *testCluster) setAddresses(m *machine, addresses ...string) {
	w.t.Helper()
	nodes := w.server.Client().CoreV1().Nodes()
	eventually(w.t, func() error {
		n, err := nodes.Get(context.Background(), m.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Status.Addresses = nodeObject("", []string{""}, addresses).Status.Addresses
		_, err = nodes.UpdateStatus(context.Background(), n, metav1.UpdateOptions{})
		return err
	})
}

// everything returns the links, routes, addresses and nftables tables of the namespace.
func (s *namespace) everything(t testing.TB) (out []string) {
	t.Helper()
	s.Must(t, func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			out = append(out, "link "+l.Attrs().Name)
		}
		addresses, err2 := netlink.AddrList(nil, netlink.FAMILY_ALL)
		for _, a := range addresses {
			if !a.IP.IsLinkLocalUnicast() {
				out = append(out, "address "+a.IPNet.String())
			}
		}
		routes, err3 := netlink.RouteList(nil, netlink.FAMILY_ALL)
		for _, r := range routes {
			if r.Dst == nil || !r.Dst.IP.IsLinkLocalUnicast() {
				out = append(out, fmt.Sprint("route ", r.Dst, r.Gw))
			}
		}
		c, err4 := nftables.New()
		if err4 != nil {
			return err4
		}
		tables, err4 := c.ListTables()
		for _, table := range tables {
			out = append(out, "table "+table.Name)
		}
		return errors.Join(err, err2, err3, err4)
	})
	slices.Sort(out)
	return out
}

// without waits until there is no route to a range.
func (s *namespace) without(t testing.TB, to string) {
	t.Helper()
	eventually(t, func() error {
		for _, line := range s.everything(t) {
			if strings.HasPrefix(line, "route "+to) {
				return errors.New(line)
			}
		}
		return nil
	})
}

// TestRestart: a connection between pods survives a restart of skiff; with the kernel backends it does not even pause.
func TestRestart(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{VXLAN, HostGW, UDP} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			w := newTestCluster(t, 1500)
			a, b := w.pair(backend)
			before := a.links(t)
			conn, _, err := a.pod.dial(b.podIP(false))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for i := range 3 {
				if err := exchange(conn, i); err != nil {
					t.Fatal(err)
				}
				a.stop()
				if backend != UDP { // with udp, packets wait for skiff
					conn.SetDeadline(time.Now().Add(testTimeout))
					if err := exchange(conn, i); err != nil {
						t.Fatalf("while skiff is away: %v", err)
					}
				}
				a.start(backend)
				conn.SetDeadline(time.Now().Add(testTimeout))
				if err := exchange(conn, i); err != nil {
					t.Fatalf("after the restart: %v", err)
				}
			}
			if after := a.links(t); after != before {
				t.Errorf("links were made anew: %s, before %s", after, before)
			}
		})
	}
}

func (s *namespace) links(t testing.TB) (out string) {
	s.Must(t, func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			out += fmt.Sprintf("%d=%s ", l.Attrs().Index, l.Attrs().Name)
		}
		return err
	})
	return out
}

// TestRepair: state that others remove is restored, state that others add stays, and stale state of the overlay is removed.
func TestRepair(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, 1500)
	a, b := w.add(1), w.add(2)
	a.Must(t, func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		stale := &netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: ipNet(netip.MustParsePrefix("10.42.9.0/24")), Gw: net.ParseIP("192.0.2.9"), Protocol: protocol}
		theirs := &netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: ipNet(netip.MustParsePrefix("10.42.8.0/24")), Gw: net.ParseIP("192.0.2.8"), Protocol: unix.RTPROT_STATIC}
		return errors.Join(netlink.RouteAdd(stale), netlink.RouteAdd(theirs))
	})
	a.join(VXLAN, a.ip4)
	b.join(VXLAN, b.ip4)
	a.pod.reaches(t, b.podIP(false), a.podIP(false))
	a.without(t, "10.42.9.0/24")
	if !slices.Contains(a.everything(t), "route 10.42.8.0/24 192.0.2.8") {
		t.Error("somebody else's route is gone")
	}
	for _, harm := range []struct {
		what string
		do   func(vx netlink.Link) error
	}{
		{"the interface is deleted", netlink.LinkDel},
		{"it is down", netlink.LinkSetDown},
		{"its MTU is changed", func(vx netlink.Link) error { return netlink.LinkSetMTU(vx, 1280) }},
		{"its hardware address is changed", func(vx netlink.Link) error {
			return netlink.LinkSetHardwareAddr(vx, net.HardwareAddr{2, 0, 0, 0, 0, 1})
		}},
		{"its address is gone", func(vx netlink.Link) error {
			own, _ := netlink.ParseAddr("10.42.1.0/32")
			return netlink.AddrDel(vx, own)
		}},
		{"the route is gone", func(vx netlink.Link) error {
			return netlink.RouteDel(&netlink.Route{LinkIndex: vx.Attrs().Index, Dst: ipNet(netip.MustParsePrefix("10.42.2.0/24"))})
		}},
		{"the neighbour is gone", func(vx netlink.Link) error {
			return netlink.NeighDel(&netlink.Neigh{LinkIndex: vx.Attrs().Index, IP: net.ParseIP("10.42.2.0")})
		}},
		{"the neighbour is elsewhere", func(vx netlink.Link) error {
			return netlink.NeighSet(&netlink.Neigh{LinkIndex: vx.Attrs().Index, IP: net.ParseIP("10.42.2.0"), State: netlink.NUD_PERMANENT, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 7}})
		}},
		{"the forwarding entry is gone", func(vx netlink.Link) error { return netlink.NeighDel(forwardTo(vx, macOf(b.Name), b.ip4)) }},
		{"the forwarding entry leads elsewhere", func(vx netlink.Link) error { return netlink.NeighSet(forwardTo(vx, macOf(b.Name), "192.0.2.66")) }},
		{"an unknown hardware address has two destinations", func(vx netlink.Link) error {
			return errors.Join(netlink.NeighAppend(forwardTo(vx, mac{}, "192.0.2.66")), netlink.NeighAppend(forwardTo(vx, mac{}, "192.0.2.67")))
		}},
		{"there is a forwarding entry more", func(vx netlink.Link) error {
			return netlink.NeighAppend(forwardTo(vx, mac{2, 0, 0, 0, 0, 9}, "192.0.2.66"))
		}},
	} {
		t.Run(harm.what, func(t *testing.T) {
			want := a.programmed(t)
			a.Must(t, func() error {
				vx, err := netlink.LinkByName(vxlanDevice)
				if err != nil {
					return err
				}
				return harm.do(vx)
			})
			eventually(t, func() error {
				if got := a.programmed(t); got != want {
					return fmt.Errorf("%s\nwant %s", got, want)
				}
				return nil
			})
			a.pod.reaches(t, b.podIP(false), a.podIP(false))
		})
	}
}

func forwardTo(vx netlink.Link, at mac, to string) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: vx.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT, IP: net.ParseIP(to), HardwareAddr: at[:]}
}

// programmed returns the overlay's state in the kernel as text.
func (s *namespace) programmed(t testing.TB) (out string) {
	t.Helper()
	s.Must(t, func() error {
		k, err := openKernel(settings{name: s.Name, backend: VXLAN}, Options{}, nil, tunnelCounts{})
		if err != nil {
			return err
		}
		defer k.close()
		vx, err := k.find(vxlanDevice)
		if err != nil || vx == nil {
			out = "no interface"
			return err
		}
		k.device = vx.Attrs().Index
		routes, err := k.ourRoutes()
		if err != nil {
			return err
		}
		have := entries{routes: map[routeKey]route{}, neighbours: map[netip.Addr]mac{}, forwards: map[mac]netip.Addr{}}
		for _, r := range routes {
			key, value, ok := k.parseRoute(r)
			if !ok {
				out += fmt.Sprintln("route", r)
			}
			have.routes[key] = value
		}
		addresses, err := k.AddrList(vx, netlink.FAMILY_ALL)
		out += fmt.Sprintln(have.routes, vx.Attrs().MTU, vx.Attrs().HardwareAddr, vx.Attrs().Flags, addresses)
		err = errors.Join(err, k.readDevice(&have))
		out += fmt.Sprintln(have.neighbours, have.forwards)
		return err
	})
	return out
}
