package overlay

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// object returns a Node that was created some seconds after the first.
func object(after int, name, backend string, addresses []string, ranges ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(after), 0)),
		Annotations: map[string]string{BackendAnnotation: backend, MACAnnotation: macOf(name).String()}}}
	n.Spec.PodCIDRs = ranges
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// with sets an annotation of a Node and returns it.
func with(n *corev1.Node, key, value string) *corev1.Node {
	n.Annotations[key] = value
	return n
}

// TestDecide: this node is "me" with 192.0.2.1, 2001:db8::1, 10.42.0.0/24 and fd42::/64; want lists the plan without its own ranges.
func TestDecide(t *testing.T) {
	near, far := []string{"192.0.2.2", "2001:db8::2"}, []string{"203.0.113.2"}
	me := object(10, "me", VXLAN, []string{"192.0.2.1", "2001:db8::1"}, "10.42.0.0/24", "fd42::/64")
	for _, c := range []struct {
		name    string
		backend string
		nodes   []*corev1.Node
		want    string // routes
		problem string // part of the one problem; none if empty
	}{
		{"vxlan, near", VXLAN, nodesOf(object(1, "a", VXLAN, near, "10.42.1.0/24")), "10.42.1.0/24 via 10.42.1.0 ours, a at 192.0.2.2", ""},
		{"vxlan, far", VXLAN, nodesOf(object(1, "a", VXLAN, far, "10.42.1.0/24")), "10.42.1.0/24 via 10.42.1.0 ours, a at 203.0.113.2", ""},
		{"host-gw, near, both families", HostGW, nodesOf(object(1, "a", HostGW, near, "10.42.1.0/24", "fd42:0:0:1::/64")),
			"10.42.1.0/24 via 192.0.2.2 link 7, fd42:0:0:1::/64 via 2001:db8::2 link 7", ""},
		{"host-gw, far", HostGW, nodesOf(object(1, "a", HostGW, far, "10.42.1.0/24")), "", "203.0.113.2 is not on this node's segment"},
		{"host-gw, no address of the family", HostGW, nodesOf(object(1, "a", HostGW, near[:1], "10.42.1.0/24", "fd42:0:0:1::/64")),
			"10.42.1.0/24 via 192.0.2.2 link 7", "fd42:0:0:1::/64 of node a cannot be reached: it has no address of that family"},
		{"auto, near and far", Auto, nodesOf(object(1, "a", VXLAN, near, "10.42.1.0/24"), object(2, "b", VXLAN, far, "10.42.2.0/24")),
			"10.42.1.0/24 via 192.0.2.2 link 7, 10.42.2.0/24 via 10.42.2.0 ours, b at 203.0.113.2", ""},
		{"udp", UDP, nodesOf(object(1, "a", UDP, far, "10.42.1.0/24")), "10.42.1.0/24 ours, 10.42.1.0/24 at 203.0.113.2", ""},
		{"no address", VXLAN, nodesOf(object(1, "a", VXLAN, nil, "10.42.1.0/24")), "", "no address of the same family"},
		{"only IPv6", VXLAN, nodesOf(object(1, "a", VXLAN, near[1:], "10.42.1.0/24")), "", "no address of the same family"},
		{"not a part of it yet", VXLAN, nodesOf(object(1, "a", "", near, "10.42.1.0/24")), "", ""},
		{"another backend", VXLAN, nodesOf(object(1, "a", UDP, near, "10.42.1.0/24")), "", `node a uses the overlay backend "udp", this one "vxlan"`},
		{"no hardware address", VXLAN, nodesOf(with(object(1, "a", VXLAN, near, "10.42.1.0/24"), MACAnnotation, "nonsense")), "", "says no hardware address"},
		{"everybody's hardware address", VXLAN, nodesOf(with(object(1, "a", VXLAN, near, "10.42.1.0/24"), MACAnnotation, "ff:ff:ff:ff:ff:ff")), "", "says no hardware address"},
		{"my hardware address", VXLAN, nodesOf(with(object(1, "a", VXLAN, near, "10.42.1.0/24"), MACAnnotation, macOf("me").String())), "", "which is that of node me"},
		{"my address", VXLAN, nodesOf(object(1, "a", VXLAN, []string{"192.0.2.1"}, "10.42.1.0/24")), "", "192.0.2.1, which is this node's"},

		{"malformed", VXLAN, nodesOf(object(1, "a", VXLAN, near, "10.42.1.0/33"), object(2, "b", VXLAN, far, "10.42.2.0/24")),
			"10.42.2.0/24 via 10.42.2.0 ours, b at 203.0.113.2", `"10.42.1.0/33" is not a range`},
		{"host bits", VXLAN, nodesOf(object(1, "a", VXLAN, near, "10.42.1.7/24")), "", "it would be 10.42.1.0/24"},
		{"outside", VXLAN, nodesOf(object(1, "a", VXLAN, near, "0.0.0.0/0")), "", "not within those of the cluster"},
		{"wider than the cluster", VXLAN, nodesOf(object(1, "a", VXLAN, near, "10.42.0.0/15")), "", "not within those of the cluster"},
		{"overlap, the first keeps it", VXLAN, nodesOf(object(2, "a", VXLAN, near, "10.42.1.0/24"), object(1, "b", VXLAN, far, "10.42.1.0/24")),
			"10.42.1.0/24 via 10.42.1.0 ours, b at 203.0.113.2", "its range of pod addresses 10.42.1.0/24 overlaps one of node b"},
		{"the wider came first", VXLAN, nodesOf(object(1, "a", VXLAN, near, "10.42.16.0/20"), object(2, "b", VXLAN, far, "10.42.17.0/24")),
			"10.42.16.0/20 via 10.42.16.0 ours, a at 192.0.2.2", "10.42.17.0/24 overlaps one of node a"},
		{"the narrower came first", VXLAN, nodesOf(object(2, "a", VXLAN, near, "10.42.16.0/20"), object(1, "b", VXLAN, far, "10.42.17.0/24")),
			"10.42.17.0/24 via 10.42.17.0 ours, b at 203.0.113.2", "10.42.16.0/20 overlaps one of node b"},
		{"one of two overlaps", VXLAN, nodesOf(object(2, "a", VXLAN, near, "10.42.1.0/24", "fd42:0:0:1::/64"), object(1, "b", VXLAN, far, "10.42.1.0/24")),
			"10.42.1.0/24 via 10.42.1.0 ours, b at 203.0.113.2, fd42:0:0:1::/64 via " + gateway(netip.MustParsePrefix("fd42::/64"), macOf("a")).String() + " ours, a at 192.0.2.2",
			"10.42.1.0/24 overlaps one of node b"},
		{"mine, and I came later", VXLAN, nodesOf(object(1, "a", VXLAN, near, "10.42.0.0/24")), "", "overlaps 10.42.0.0/24 of node a, which came first"},
		{"mine, and I was first", VXLAN, nodesOf(object(11, "a", VXLAN, near, "10.42.0.0/24")), "", "overlaps one of node me, which came first"},
		{"nodes' addresses in it", VXLAN, nodesOf(object(1, "a", VXLAN, []string{"10.42.1.9"}, "10.42.1.0/24")), "", "has addresses of nodes in it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			known := newNodes()
			for _, n := range append(c.nodes, me) {
				known.set(n)
			}
			self, others := known.all("me")
			s := settings{name: "me", backend: c.backend, clusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/48")}}
			v4 := localAddr{address: netip.MustParseAddr("192.0.2.1"), link: 7, mtu: 1500, segments: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
			v6 := localAddr{address: netip.MustParseAddr("2001:db8::1"), link: 7, mtu: 1500, segments: []netip.Prefix{netip.MustParsePrefix("2001:db8::/64")}}
			p := s.decide(underlay{outer: v4, ipv4: &v4, ipv6: &v6}, self, others)
			if got := describe(p, "a", "b"); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
			if c.problem == "" && len(p.problems) != 0 || c.problem != "" && (len(p.problems) != 1 || !strings.Contains(p.problems[0].text, c.problem)) {
				t.Errorf("problems %v, want %q", p.problems, c.problem)
			}
			if fmt.Sprint(p.addresses) != "[10.42.0.0/32 fd42::/128]" {
				t.Errorf("own addresses %v", p.addresses)
			}
		})
	}
}

func nodesOf(list ...*corev1.Node) []*corev1.Node { return list }

// describe returns a plan as text, without this node's own ranges.
func describe(p plan, names ...string) string {
	var out []string
	for _, to := range slices.SortedFunc(maps.Keys(p.routes), func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) }) {
		r := p.routes[to]
		if r.unreachable() {
			continue
		}
		text := to.String()
		if r.via.IsValid() {
			text += " via " + r.via.String()
		}
		if r.viaOverlay {
			text += " ours"
		} else {
			text += fmt.Sprint(" link ", r.dev)
		}
		out = append(out, text)
		if at, ok := p.tunnels[to]; ok {
			out = append(out, to.String()+" at "+at.String())
		}
		for _, name := range names {
			if p.neighbours[r.via] == macOf(name) {
				out = append(out, name+" at "+p.forwards[macOf(name)].String())
			}
		}
	}
	return strings.Join(out, ", ")
}

func TestMTU(t *testing.T) {
	for _, c := range []struct {
		backend string
		v6      bool
		want    int
	}{{VXLAN, false, 1450}, {VXLAN, true, 1430}, {Auto, false, 1450}, {HostGW, false, 1500}, {HostGW, true, 1500}, {UDP, false, 1472}, {UDP, true, 1452}} {
		if got := (settings{backend: c.backend}).mtu(1500, c.v6); got != c.want {
			t.Errorf("%s, IPv6 %v: %d, want %d", c.backend, c.v6, got, c.want)
		}
	}
}

// TestTooSmallForIPv6: a link whose MTU is too small for IPv6 still carries IPv4.
func TestTooSmallForIPv6(t *testing.T) {
	me := read(object(1, "me", VXLAN, []string{"192.0.2.1"}, "10.42.0.0/24", "fd42::/64"))
	v4 := localAddr{address: netip.MustParseAddr("192.0.2.1"), mtu: 1300}
	p := settings{name: "me", backend: VXLAN}.decide(underlay{outer: v4, ipv4: &v4}, me, nil)
	if fmt.Sprint(p.addresses) != "[10.42.0.0/32]" || len(p.problems) != 1 || !strings.Contains(p.problems[0].text, "1280") {
		t.Errorf("addresses %v, problems %v", p.addresses, p.problems)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Backend: "ipip"}, {Backend: VXLAN}, {VNI: 1 << 24}, {Port: 70000}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

func TestMACs(t *testing.T) {
	seen := map[mac]string{}
	for i := range 5000 {
		name := fmt.Sprint("node-", i)
		m := macOf(name)
		if other, twice := seen[m]; twice || m[0]&3 != 2 {
			t.Fatalf("%s has %s, and so has %q", name, m, other)
		}
		seen[m] = name
	}
}
