package overlay

import (
	"fmt"
	"net/netip"
)

// The backends: how packets are carried to other nodes.
const (
	VXLAN  = "vxlan"
	HostGW = "host-gw"
	UDP    = "udp"
	Auto   = "auto"
)

// The overlay's interfaces, ports and VNI. Port 8472, port 8285 and VNI 1 are Flannel's.
const (
	vxlanDevice = "skiff.vx"
	tunDevice   = "skiff.tun"

	defaultVNI       = 1
	defaultVXLANPort = 8472
	defaultUDPPort   = 8285
)

// The sizes of the headers that encapsulation adds: vxlan has outer IP and UDP headers, the VXLAN and an inner Ethernet header; udp has IP and
// UDP headers.
const (
	ipv4Header, ipv6Header, udpHeader = 20, 40, 8
	vxlanHeaders                      = 8 + 14
	minIPv6MTU                        = 1280 // the least MTU of IPv6 (RFC 8200)
	minMTU                            = 576  // what every IPv4 host must accept (RFC 791)
)

// settings are the inputs of decide that never change while skiff runs.
type settings struct {
	name         string
	backend      string
	clusterCIDRs []netip.Prefix
}

// peerBackend returns the backend that this node publishes: auto is vxlan to other nodes, which need not know when packets go without encapsulation.
func (s settings) peerBackend() string {
	if s.backend == Auto {
		return VXLAN
	}
	return s.backend
}

// device returns the name of the overlay's interface; empty if the backend has none.
func (s settings) device() string {
	switch s.backend {
	case HostGW:
		return ""
	case UDP:
		return tunDevice
	}
	return vxlanDevice
}

// mtu returns the MTU of pods, given the MTU of the link between nodes and whether the outer header is IPv6.
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
	outer  localAddr  // the address and link of encapsulated packets
	ipv4   *localAddr // nil if the node has no IPv4 address
	ipv6   *localAddr // nil if the node has no IPv6 address
	natted bool       // no link has the node's address: packets leave by the default route, from whichever address its link has
}

// localAddr is an address of this node and the link that has it.
type localAddr struct {
	address  netip.Addr
	link     int
	mtu      int
	segments []netip.Prefix // the on-link prefixes: addresses in them are on the same segment
}

func (u underlay) family(v6 bool) *localAddr {
	if v6 {
		return u.ipv6
	}
	return u.ipv4
}

// onSegment returns this node's local address of the address's family, and whether the address is on the same segment.
func (u underlay) onSegment(a netip.Addr) (*localAddr, bool) {
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

// plan is the wanted state of the kernel.
type plan struct {
	mtu        int
	addresses  []netip.Prefix // the addresses of the overlay's interface
	routes     map[netip.Prefix]route
	neighbours map[netip.Addr]mac
	forwards   map[mac]netip.Addr          // the forwarding database of the VXLAN interface
	sources    map[netip.Addr]bool         // the addresses of other nodes, from which encapsulated packets are accepted
	tunnels    map[netip.Prefix]netip.Addr // the node of each range, for the udp backend
	peers      int                         // the number of other nodes with a range that is reached
	problems   []problem
}

// route is how packets to a range are sent. The zero value is an unreachable route.
type route struct {
	via netip.Addr
	dev int // the index of the link; 0 if viaOverlay
	// viaOverlay marks a route through the overlay's interface, whose index changes when it is created again.
	viaOverlay bool
}

func (r route) unreachable() bool { return r == route{} }

// problem is a reason why a node cannot be reached or cannot use one of its ranges.
type problem struct {
	node   string // the Node that the Event is about
	other  string // another Node that is concerned, if any
	reason string // the reason of the Event
	text   string
}

// The reasons of Events.
const (
	reasonRange   = "PodCIDRNotUsable"
	reasonReached = "NodeNotReached"
)

// decide returns the wanted state of the kernel. It is a pure function; others must be ordered by creation.
func (s settings) decide(u underlay, self *node, others []*node) plan {
	p := plan{
		mtu:    s.mtu(u.outer.mtu, u.outer.address.Is6()),
		routes: map[netip.Prefix]route{}, neighbours: map[netip.Addr]mac{}, forwards: map[mac]netip.Addr{}, tunnels: map[netip.Prefix]netip.Addr{},
		sources: map[netip.Addr]bool{},
	}
	var taken holders
	if self != nil {
		s.planOwnRanges(&p, self, &taken)
	}
	byMAC := map[mac]string{macOf(s.name): s.name}
	for _, other := range others {
		p.complain(other, other.invalid...)
		free := s.claimRanges(&p, u, self, other, &taken)
		if len(free) == 0 || other.backend == "" { // the node is not part of the overlay, or not yet
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
			reached = s.planRange(&p, u, other, r) || reached
		}
		if reached {
			p.peers++
		}
	}
	return p
}

// planOwnRanges adds this node's own ranges to the plan. They are the node's even if another node claims them, because its pods have
// addresses of them. Each gets an unreachable route, so that packets to addresses without a pod do not leave by the default route.
func (s settings) planOwnRanges(p *plan, self *node, taken *holders) {
	p.complain(self, self.invalid...)
	for _, r := range self.ranges {
		if !s.inCluster(r) {
			p.complain(self, s.outside(r))
			continue
		}
		if r.Addr().Is6() && p.mtu < minIPv6MTU {
			p.complain(self, fmt.Sprintf("IPv6 needs packets of %d bytes, and %d are left of what the node's link carries", minIPv6MTU, p.mtu))
			continue
		}
		taken.add(r, self)
		p.routes[r] = route{}
		p.addresses = append(p.addresses, netip.PrefixFrom(r.Addr(), r.Addr().BitLen()))
	}
}

// claimRanges returns the usable ranges of another node and marks them as taken. Those that overlap or are invalid become problems.
func (s settings) claimRanges(p *plan, u underlay, self, other *node, taken *holders) (free []netip.Prefix) {
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

// cannotReach returns why no packets can be sent to a node; empty if they can.
func (s settings) cannotReach(u underlay, other *node, byMAC map[mac]string) string {
	if other.backend != s.peerBackend() {
		return fmt.Sprintf("node %s uses the overlay backend %q, this one %q", other.name, other.backend, s.peerBackend())
	}
	for _, a := range other.addresses {
		if p := u.family(a.Is6()); p != nil && p.address == a {
			return fmt.Sprintf("node %s says that its address is %s, which is this node's", other.name, a)
		}
	}
	if s.peerBackend() != VXLAN {
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

// planRange adds the route to a range of another node, and what the backend needs for it. It reports whether the range can be reached.
func (s settings) planRange(p *plan, u underlay, other *node, r netip.Prefix) bool {
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
		p.routes[r] = route{viaOverlay: true}
		return true
	}
	via := gateway(r, other.mac)
	p.forwards[other.mac] = to
	p.neighbours[via] = other.mac
	p.routes[r] = route{via: via, viaOverlay: true}
	return true
}

// gateway returns the gateway address that stands for another node's VXLAN interface in a route; its neighbour entry has the hardware
// address. For IPv4 it is the interface's own address. For IPv6 it is link-local: the kernel refuses a gateway that another route leads to,
// and the interface's own address is in the very range that may have had another route before.
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

// inCluster reports whether a range is within the cluster CIDRs. This keeps a node from claiming, say, the address of the default gateway.
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
