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
	// protocol marks the overlay's routes: S, a number that neither iproute2 nor a routing daemon has a name for.
	protocol = netlink.RouteProtocol('S')
	// unreachableMetric is the metric of the unreachable route to each of this node's own ranges. Any other route to the range, such as a
	// bridge's, takes precedence; pods have more specific routes.
	unreachableMetric = 65535
	// ipv6Metric is the kernel's default metric of IPv6 routes.
	ipv6Metric = 1024
	// netlinkTimeout bounds every netlink request.
	netlinkTimeout = 10 * time.Second
	// dumpTries bounds how often a list is requested again that changed while it was read.
	dumpTries = 5
)

// kernel is the network namespace of the thread that opened it. It keeps the state that it read and changed, so that a change of one node takes
// a few netlink messages, however many nodes there are. Only one goroutine may use it.
type kernel struct {
	*netlink.Handle
	settings
	vni, vxlanPort, udpPort int

	device  int // the index of the overlay's interface; 0 if there is none
	current entries
	tunnel  *tunnel // the data path of the udp backend; nil for others
	count   func(kind, action string)
	counts  tunnelCounts
}

// entries is the overlay's state in the kernel.
type entries struct {
	routes     map[routeKey]route
	neighbours map[netip.Addr]mac
	forwards   map[mac]netip.Addr
	sources    map[netip.Addr]bool // the accepted sources of encapsulated packets; nil if unknown
	strays     []netlink.Route     // routes with the overlay's protocol number that it would not create
}

// routeKey identifies a route: a range may have two routes with different metrics.
type routeKey struct {
	to          netip.Prefix
	unreachable bool
}

func openKernel(s settings, o Options, count func(kind, action string), counts tunnelCounts) (*kernel, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("failed to open a netlink socket: %w", err)
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

// close closes the tunnel and the netlink socket. The kernel's state stays as it is.
func (k *kernel) close() {
	k.tunnel.close()
	k.Handle.Close()
}

// readState reads the overlay's state from the kernel. The overlay's interface must exist already, if the backend has one.
func (k *kernel) readState() error {
	have := entries{routes: map[routeKey]route{}, neighbours: map[netip.Addr]mac{}, forwards: map[mac]netip.Addr{}}
	routes, err := k.ourRoutes()
	if err != nil {
		return err
	}
	for _, r := range routes {
		key, value, ok := k.parseRoute(r)
		first, seen := have.routes[key]
		switch {
		case !ok || seen && first != value:
			have.strays = append(have.strays, r)
		default: // while other programs change routes, one may be listed twice
			have.routes[key] = value
		}
	}
	if k.device != 0 && k.settings.device() == vxlanDevice {
		if err := k.readDevice(&have); err != nil {
			return err
		}
	}
	k.current = have
	k.refreshGuard()
	return nil
}

func (k *kernel) ourRoutes() ([]netlink.Route, error) {
	routes, err := retry(func() ([]netlink.Route, error) {
		return k.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: protocol}, netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return nil, fmt.Errorf("failed to list routes: %w", err)
	}
	return routes, nil
}

// parseRoute reads a route with the overlay's protocol number; ok is false for one that the overlay would not create.
func (k *kernel) parseRoute(r netlink.Route) (key routeKey, value route, ok bool) {
	if r.Dst == nil || len(r.MultiPath) > 0 || r.Type != unix.RTN_UNICAST && r.Type != unix.RTN_UNREACHABLE {
		return key, value, false
	}
	to, ok := netip.AddrFromSlice(r.Dst.IP)
	bits, _ := r.Dst.Mask.Size()
	key = routeKey{netip.PrefixFrom(to.Unmap(), bits), r.Type == unix.RTN_UNREACHABLE}
	if !ok || r.Priority != metric(key) {
		return key, value, false
	}
	if key.unreachable {
		return key, route{}, true
	}
	if r.Gw != nil {
		via, valid := netip.AddrFromSlice(r.Gw)
		value.via, ok = via.Unmap(), valid
	}
	if r.LinkIndex == k.device {
		value.viaOverlay = true
		ok = ok && (!value.via.Is4() || r.Flags&int(netlink.FLAG_ONLINK) != 0)
	} else {
		value.dev = r.LinkIndex
	}
	return key, value, ok
}

func metric(key routeKey) int {
	switch {
	case key.unreachable:
		return unreachableMetric
	case key.to.Addr().Is6():
		return ipv6Metric
	}
	return 0
}

// readDevice reads the neighbour and forwarding entries of the VXLAN interface. All permanent entries are the overlay's; those that the kernel
// creates itself, for multicast, are ignored.
func (k *kernel) readDevice(have *entries) error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := retry(func() ([]netlink.Neigh, error) { return k.NeighList(k.device, family) })
		if err != nil {
			return fmt.Errorf("failed to list neighbour entries: %w", err)
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
		return fmt.Errorf("failed to list forwarding entries: %w", err)
	}
	for _, n := range list {
		ip, ok := netip.AddrFromSlice(n.IP)
		if len(n.HardwareAddr) != len(mac{}) {
			continue
		}
		at := mac(n.HardwareAddr)
		if _, seen := have.forwards[at]; !ok || seen {
			ip = netip.Addr{} // the entry has several destinations or none: setForward replaces it
		}
		have.forwards[at] = ip.Unmap()
	}
	return nil
}

// retry requests a list again if it changed while it was read.
func retry[T any](list func() ([]T, error)) (out []T, err error) {
	for range dumpTries {
		if out, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) {
			return out, err
		}
	}
	return nil, err
}

// ignoreNotFound returns nil for errors that say that what was to be removed does not exist.
func ignoreNotFound(err error) error {
	var link netlink.LinkNotFoundError
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.As(err, &link) {
		return nil
	}
	return err
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
