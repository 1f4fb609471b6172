package overlay

import (
	"fmt"
	"net/netip"
)

// The ways by which packets go to other nodes.
const (
	VXLAN  = "vxlan"
	HostGW = "host-gw"
	UDP    = "udp"
	Auto   = "auto"
)

// Our interfaces, ports and the like. Port 8472 and network 1 are Flannel's, as are the forms of the backends.
const (
	vxlanDevice = "skiff.vx"
	tunDevice   = "skiff.tun"

	defaultVNI       = 1
	defaultVXLANPort = 8472
	defaultUDPPort   = 8285
)

// What wrapping adds to a packet: VXLAN has outer IP and UDP headers, its own and an inner Ethernet header; udp has IP and UDP headers.
const (
	ipv4Header, ipv6Header, udpHeader = 20, 40, 8
	vxlanHeaders                      = 8 + 14
	leastIPv6                         = 1280 // IPv6 does not work on links that carry less
	leastMTU                          = 576  // what every IPv4 host must be able to take
)

// settings are what is the same for as long as skiff runs.
type settings struct {
	name         string
	backend      string
	clusterCIDRs []netip.Prefix
}

// speaks is the backend as others see it: they need not know when one goes without wrapping.
func (s settings) speaks() string {
	if s.backend == Auto {
		return VXLAN
	}
	return s.backend
}

// device is our interface, if the backend has one.
func (s settings) device() string {
	switch s.backend {
	case HostGW:
		return ""
	case UDP:
		return tunDevice
	}
	return vxlanDevice
}

// mtu is the size of the largest packet that a pod may send, for a link by which nodes reach each other.
func (s settings) mtu(link int, v6 bool) int {
	outer := ipv4Header + udpHeader
	if v6 {
		outer = ipv6Header + udpHeader
	}
	switch s.backend {
	case HostGW:
		return link
	case UDP:
		return link - outer
	}
	return link - outer - vxlanHeaders
}

// underlay is how this node is connected to the others.
type underlay struct {
	outer  place  // by which wrapped packets go
	ipv4   *place // nil if the node has no address of the family
	ipv6   *place
	absent bool // no link has the node's address: packets go where the default route says, from whichever address that has
}

// place is an address of this node and the link that has it.
type place struct {
	address  netip.Addr
	link     int
	mtu      int
	segments []netip.Prefix // whoever has an address in these is on the same segment
}

func (u underlay) family(v6 bool) *place {
	if v6 {
		return u.ipv6
	}
	return u.ipv4
}

// onSegment says whether an address can be sent to with nobody in between.
func (u underlay) onSegment(a netip.Addr) (*place, bool) {
	p := u.family(a.Is6())
	if p == nil {
		return nil, false
	}
	for _, s := range p.segments {
		if s.Contains(a) {
			return p, true
		}
	}
	return p, false
}

// plan is what must be in the kernel.
type plan struct {
	mtu        int
	addresses  []netip.Prefix // of our interface
	routes     map[netip.Prefix]route
	neighbours map[netip.Addr]mac
	forwards   map[mac]netip.Addr
	sources    map[netip.Addr]bool         // that wrapped packets are taken from: the addresses of other nodes
	tunnels    map[netip.Prefix]netip.Addr // for the udp backend: at which node a range is
	peers      int
	problems   []problem
}

// route is how packets to a range go. The zero value says that nobody is there.
type route struct {
	via netip.Addr
	dev int // that of our own interface if ours
	// ours says that the route is by our own interface, whose number changes when it is made anew.
	ours bool
}

func (r route) unreachable() bool { return r == route{} }

// problem is something about a node that keeps packets from it, or it from having its range.
type problem struct {
	node   string
	other  string // that is concerned as well
	reason string // of the event
	text   string
}

// Reasons of problems.
const (
	reasonRange   = "PodCIDRNotUsable"
	reasonReached = "NodeNotReached"
)

// decide says what must be in the kernel. It is a pure function; others are in the order in which they came.
func (s settings) decide(u underlay, self *node, others []*node) plan {
	p := plan{
		mtu:    s.mtu(u.outer.mtu, u.outer.address.Is6()),
		routes: map[netip.Prefix]route{}, neighbours: map[netip.Addr]mac{}, forwards: map[mac]netip.Addr{}, tunnels: map[netip.Prefix]netip.Addr{},
		sources: map[netip.Addr]bool{},
	}
	var taken holders
	if self != nil {
		s.own(&p, self, &taken)
	}
	byMAC := map[mac]string{macOf(s.name): s.name}
	for _, other := range others {
		p.complain(other, other.bad...)
		free := s.free(&p, u, self, other, &taken)
		if len(free) == 0 || other.backend == "" { // it does not take part, or not yet
			continue
		}
		if why := s.cannotReach(u, other, byMAC); why != "" {
			p.problems = append(p.problems, problem{s.name, other.name, reasonReached, why})
			continue
		}
		byMAC[other.mac] = other.name
		for _, a := range other.addresses {
			p.sources[a] = true
		}
		reached := false
		for _, r := range free {
			reached = s.reach(&p, u, other, r) || reached
		}
		if reached {
			p.peers++
		}
	}
	return p
}

// own is for this node's own ranges. It has them whatever others say: its pods have addresses of them. Where no pod is, nobody is: packets to it
// do not leave by the default route.
func (s settings) own(p *plan, self *node, taken *holders) {
	p.complain(self, self.bad...)
	for _, r := range self.ranges {
		if !s.inCluster(r) {
			p.complain(self, s.outside(r))
			continue
		}
		if r.Addr().Is6() && p.mtu < leastIPv6 {
			p.complain(self, fmt.Sprintf("IPv6 needs packets of %d bytes, and %d are left of what the node's link carries", leastIPv6, p.mtu))
			continue
		}
		taken.add(r, self)
		p.routes[r] = route{}
		p.addresses = append(p.addresses, netip.PrefixFrom(r.Addr(), r.Addr().BitLen()))
	}
}

// free are the ranges of another node that it may have.
func (s settings) free(p *plan, u underlay, self, other *node, taken *holders) (free []netip.Prefix) {
	for _, r := range other.ranges {
		holder := taken.holder(r)
		switch {
		case !s.inCluster(r):
			p.complain(other, s.outside(r))
		case holder != nil && holder == self && other.before(self) < 0:
			p.problems = append(p.problems, problem{self.name, other.name, reasonRange,
				fmt.Sprintf("its range of pod addresses overlaps %s of node %s, which came first", r, other.name)})
		case holder != nil:
			p.problems = append(p.problems, problem{other.name, holder.name, reasonRange,
				fmt.Sprintf("its range of pod addresses %s overlaps one of node %s, which came first", r, holder.name)})
		case r.Contains(u.outer.address) || containsAny(r, other.addresses):
			p.complain(other, fmt.Sprintf("its range of pod addresses %s has addresses of nodes in it", r))
		default:
			taken.add(r, other)
			free = append(free, r)
		}
	}
	return free
}

// cannotReach says why no packets can be sent to a node, if so.
func (s settings) cannotReach(u underlay, other *node, byMAC map[mac]string) string {
	if other.backend != s.speaks() {
		return fmt.Sprintf("node %s uses the overlay backend %q, this one %q", other.name, other.backend, s.speaks())
	}
	for _, a := range other.addresses {
		if p := u.family(a.Is6()); p != nil && p.address == a {
			return fmt.Sprintf("node %s says that its address is %s, which is this node's", other.name, a)
		}
	}
	if s.speaks() != VXLAN {
		return ""
	}
	if (other.mac == mac{}) {
		return fmt.Sprintf("node %s says no hardware address in its annotation %s", other.name, MACAnnotation)
	}
	if name, taken := byMAC[other.mac]; taken {
		return fmt.Sprintf("node %s says that its hardware address is %s, which is that of node %s", other.name, other.mac, name)
	}
	return ""
}

// reach adds what it takes for packets to get to a range of another node.
func (s settings) reach(p *plan, u underlay, other *node, r netip.Prefix) bool {
	cannot := func(format string, args ...any) bool {
		p.problems = append(p.problems, problem{s.name, other.name, reasonReached,
			fmt.Sprintf("pods %s of node %s cannot be reached: ", r, other.name) + fmt.Sprintf(format, args...)})
		return false
	}
	if s.backend == HostGW || s.backend == Auto {
		address, has := other.address(r.Addr().Is6())
		from, near := u.onSegment(address)
		switch {
		case near:
			p.routes[r] = route{via: address, dev: from.link}
			return true
		case s.backend == Auto:
		case !has:
			return cannot("it has no address of that family")
		case from == nil:
			return cannot("this node has no address of that family")
		default:
			return cannot("its address %s is not on this node's segment, as backend %s needs; vxlan and udp do not", address, s.backend)
		}
	}
	to, has := other.address(u.outer.address.Is6())
	if !has {
		return cannot("it has no address of the same family as this node's %s", u.outer.address)
	}
	if s.backend == UDP {
		p.tunnels[r] = to
		p.routes[r] = route{ours: true}
		return true
	}
	via := gateway(r, other.mac)
	p.forwards[other.mac] = to
	p.neighbours[via] = other.mac
	p.routes[r] = route{via: via, ours: true}
	return true
}

// gateway is how the other side's interface is called in a route. The kernel only needs a name for it, as a neighbour entry says where it is. For
// IPv4 it is the address that the interface has. In IPv6 that would not do: a gateway that another route leads to is refused, and it lies in the very
// range that may have had another route before; a link-local one never does.
func gateway(r netip.Prefix, m mac) netip.Addr {
	if r.Addr().Is4() {
		return r.Addr()
	}
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}

func (p *plan) complain(about *node, texts ...string) {
	for _, t := range texts {
		p.problems = append(p.problems, problem{node: about.name, reason: reasonRange, text: t})
	}
}

// inCluster says whether a range is one that pods may have: a node that claims the address of the default gateway, say, does not get it.
func (s settings) inCluster(r netip.Prefix) bool {
	if len(s.clusterCIDRs) == 0 {
		return r.Bits() > 0
	}
	for _, c := range s.clusterCIDRs {
		if c.Bits() <= r.Bits() && c.Contains(r.Addr()) {
			return true
		}
	}
	return false
}

func (s settings) outside(r netip.Prefix) string {
	return fmt.Sprintf("its range of pod addresses %s is not within those of the cluster, %v", r, s.clusterCIDRs)
}

func containsAny(r netip.Prefix, list []netip.Addr) bool {
	for _, a := range list {
		if r.Contains(a) {
			return true
		}
	}
	return false
}
