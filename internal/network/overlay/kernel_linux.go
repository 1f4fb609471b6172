package overlay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// protocol marks our routes: S, a number that neither iproute2 nor a routing daemon has a name for.
	protocol = netlink.RouteProtocol('S')
	// nobodyMetric is that of the route that says that nobody is in this node's range, but for the pods that have routes of their own. Any other
	// route to the range, such as a bridge's, comes before it.
	nobodyMetric = 65535
	// ipv6Metric is what the kernel takes if none is said.
	ipv6Metric = 1024
	// netlinkTimeout bounds every question to the kernel.
	netlinkTimeout = 10 * time.Second
	// dumpTries is how often a list is asked for again that changed while it was read.
	dumpTries = 5
)

// kernel is the network of this node: that of the thread that opened it. It remembers what it found there and what it did, so that a change of
// one node is a few messages, however many nodes there are. Only one goroutine may use it.
type kernel struct {
	*netlink.Handle
	settings
	vni, vxlanPort, udpPort int

	device int // the number of our interface, 0 if there is none
	have   entries
	tunnel *tunnel // of the udp backend
	count  func(kind, action string)
	counts tunnelCounts
}

// entries are what there is of ours.
type entries struct {
	routes     map[routeKey]route
	neighbours map[netip.Addr]mac
	forwards   map[mac]netip.Addr
	sources    map[netip.Addr]bool // that wrapped packets are taken from; nil if it is not known
	strays     []netlink.Route     // that are marked as ours, and that we would not make
}

// routeKey tells routes apart: two that differ in their metric may be there for one range.
type routeKey struct {
	to     netip.Prefix
	nobody bool
}

func openKernel(s settings, o Options, count func(kind, action string), counts tunnelCounts) (*kernel, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("asking the kernel about its network: %w", err)
	}
	if err := handle.SetSocketTimeout(netlinkTimeout); err != nil {
		handle.Close()
		return nil, err
	}
	k := &kernel{Handle: handle, settings: s, vni: o.VNI, vxlanPort: o.Port, udpPort: o.Port, count: count, counts: counts}
	if o.Port == 0 {
		k.vxlanPort, k.udpPort = defaultVXLANPort, defaultUDPPort
	}
	if o.VNI == 0 {
		k.vni = defaultVNI
	}
	return k, nil
}

// close leaves what the kernel has as it is.
func (k *kernel) close() {
	k.tunnel.close()
	k.Handle.Close()
}

// look finds out what there is of ours. Our interface is there by now, if there is to be one.
func (k *kernel) look() error {
	have := entries{routes: map[routeKey]route{}, neighbours: map[netip.Addr]mac{}, forwards: map[mac]netip.Addr{}}
	routes, err := k.ourRoutes()
	if err != nil {
		return err
	}
	for _, r := range routes {
		key, value, ok := k.understood(r)
		first, twice := have.routes[key]
		switch {
		case !ok || twice && first != value:
			have.strays = append(have.strays, r)
		default: // while others change routes, one may be listed twice
			have.routes[key] = value
		}
	}
	if k.device != 0 && k.settings.device() == vxlanDevice {
		if err := k.lookAtDevice(&have); err != nil {
			return err
		}
	}
	k.have = have
	k.lookAtGuard()
	return nil
}

func (k *kernel) ourRoutes() ([]netlink.Route, error) {
	routes, err := retry(func() ([]netlink.Route, error) {
		return k.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: protocol}, netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	return routes, nil
}

// understood reads a route of ours; ok is false for one that we would not make.
func (k *kernel) understood(r netlink.Route) (key routeKey, value route, ok bool) {
	if r.Dst == nil || len(r.MultiPath) > 0 || r.Type != unix.RTN_UNICAST && r.Type != unix.RTN_UNREACHABLE {
		return key, value, false
	}
	to, ok := netip.AddrFromSlice(r.Dst.IP)
	bits, _ := r.Dst.Mask.Size()
	key = routeKey{netip.PrefixFrom(to.Unmap(), bits), r.Type == unix.RTN_UNREACHABLE}
	if !ok || r.Priority != metric(key) {
		return key, value, false
	}
	if key.nobody {
		return key, route{}, true
	}
	if r.Gw != nil {
		via, valid := netip.AddrFromSlice(r.Gw)
		value.via, ok = via.Unmap(), valid
	}
	if r.LinkIndex == k.device {
		value.ours = true
		ok = ok && (!value.via.Is4() || r.Flags&int(netlink.FLAG_ONLINK) != 0)
	} else {
		value.dev = r.LinkIndex
	}
	return key, value, ok
}

func metric(key routeKey) int {
	switch {
	case key.nobody:
		return nobodyMetric
	case key.to.Addr().Is6():
		return ipv6Metric
	}
	return 0
}

// lookAtDevice finds neighbours and forwarding entries of our interface. All that were put there by hand are ours; those that the kernel makes
// for itself, for multicast, are not of interest.
func (k *kernel) lookAtDevice(have *entries) error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := retry(func() ([]netlink.Neigh, error) { return k.NeighList(k.device, family) })
		if err != nil {
			return fmt.Errorf("listing neighbours: %w", err)
		}
		for _, n := range list {
			ip, ok := netip.AddrFromSlice(n.IP)
			if !ok || n.State&netlink.NUD_PERMANENT == 0 || ip.IsMulticast() {
				continue
			}
			var at mac
			copy(at[:], n.HardwareAddr)
			have.neighbours[ip.Unmap()] = at
		}
	}
	list, err := retry(func() ([]netlink.Neigh, error) { return k.NeighList(k.device, unix.AF_BRIDGE) })
	if err != nil {
		return fmt.Errorf("listing forwarding entries: %w", err)
	}
	for _, n := range list {
		ip, ok := netip.AddrFromSlice(n.IP)
		if len(n.HardwareAddr) != len(mac{}) {
			continue
		}
		at := mac(n.HardwareAddr)
		if _, twice := have.forwards[at]; !ok || twice {
			ip = netip.Addr{} // it goes to several places or to none: not as we want it
		}
		have.forwards[at] = ip.Unmap()
	}
	return nil
}

// retry asks again for a list that changed while it was read.
func retry[T any](list func() ([]T, error)) (out []T, err error) {
	for range dumpTries {
		if out, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) {
			return out, err
		}
	}
	return nil, err
}

// gone takes it for success that what was to be removed is not there.
func gone(err error) error {
	var link netlink.LinkNotFoundError
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.As(err, &link) {
		return nil
	}
	return err
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
