package overlay

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxErrors bounds the failures in one error; there may be one for each node.
const maxErrors = 5

// apply changes the kernel from its current state to the plan. A failure does not stop the other changes. What routes rely on is added first,
// then the routes are changed, and then what no route needs any more is removed, so that no packet is lost on the way.
func (k *kernel) apply(p plan) error {
	f := &failures{}
	f.add(k.guard(p.sources))
	for at, to := range p.forwards {
		if k.current.forwards[at] != to {
			f.add(k.setForward(at, to))
		}
	}
	for ip, at := range p.neighbours {
		if k.current.neighbours[ip] != at {
			f.add(k.setNeighbour(ip, at))
		}
	}
	k.tunnel.setTable(p.tunnels)
	for _, r := range k.current.strays {
		if err := ignoreNotFound(k.RouteDel(&r)); err != nil {
			f.add(fmt.Errorf("failed to remove the route %v: %w", r, err))
		}
	}
	k.current.strays = nil // those that could not be removed are found again: a failure causes a resync
	for to, r := range p.routes {
		key := routeKey{to, r.unreachable()}
		if old, there := k.current.routes[key]; !there || old != r {
			f.add(k.setRoute(key, r, there))
		}
	}
	for key, r := range k.current.routes {
		if wanted, ok := p.routes[key.to]; !ok || wanted.unreachable() != key.unreachable {
			f.add(k.removeRoute(key, r))
		}
	}
	for ip := range k.current.neighbours {
		if _, ok := p.neighbours[ip]; !ok {
			f.add(k.removeNeighbour(ip))
		}
	}
	for at := range k.current.forwards {
		if _, ok := p.forwards[at]; !ok {
			f.add(k.removeForward(at))
		}
	}
	return f.err()
}

func (k *kernel) netlinkRoute(key routeKey, r route) *netlink.Route {
	out := &netlink.Route{Dst: ipNet(key.to), Protocol: protocol, Priority: metric(key), Type: unix.RTN_UNICAST, LinkIndex: r.dev, Table: unix.RT_TABLE_MAIN}
	if key.unreachable {
		out.Type = unix.RTN_UNREACHABLE
		return out
	}
	if r.viaOverlay {
		out.LinkIndex = k.device
	}
	if r.via.IsValid() {
		out.Gw = r.via.AsSlice()
		if r.viaOverlay && r.via.Is4() {
			out.SetFlag(netlink.FLAG_ONLINK) // the gateway is in no connected range; the neighbour entry has its hardware address
		}
	} else {
		out.Scope = netlink.SCOPE_LINK
	}
	return out
}

func (k *kernel) setRoute(key routeKey, r route, replace bool) error {
	do, action := k.RouteAdd, "add"
	if replace {
		do, action = k.RouteReplace, "change"
	}
	err := do(k.netlinkRoute(key, r))
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("there is already a route to %s that is not skiff's: remove it, or pods there cannot be reached", key.to)
	}
	if err != nil {
		return fmt.Errorf("failed to set the route to %s: %w", key.to, err)
	}
	k.current.routes[key] = r
	k.count("route", action)
	return nil
}

func (k *kernel) removeRoute(key routeKey, r route) error {
	if err := ignoreNotFound(k.RouteDel(k.netlinkRoute(key, r))); err != nil {
		return fmt.Errorf("failed to remove the route to %s: %w", key.to, err)
	}
	delete(k.current.routes, key)
	k.count("route", "remove")
	return nil
}

func (k *kernel) neighbourOf(ip netip.Addr, at mac) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: k.device, State: netlink.NUD_PERMANENT, Type: unix.RTN_UNICAST, IP: ip.AsSlice(), HardwareAddr: at[:]}
}

func (k *kernel) setNeighbour(ip netip.Addr, at mac) error {
	if err := k.NeighSet(k.neighbourOf(ip, at)); err != nil {
		return fmt.Errorf("failed to set the neighbour entry %s at %s: %w", ip, at, err)
	}
	k.current.neighbours[ip] = at
	k.count("neighbour", "set")
	return nil
}

func (k *kernel) removeNeighbour(ip netip.Addr) error {
	if err := ignoreNotFound(k.NeighDel(k.neighbourOf(ip, k.current.neighbours[ip]))); err != nil {
		return fmt.Errorf("failed to remove the neighbour entry %s: %w", ip, err)
	}
	delete(k.current.neighbours, ip)
	k.count("neighbour", "remove")
	return nil
}

func (k *kernel) forwardOf(at mac, to netip.Addr) *netlink.Neigh {
	n := &netlink.Neigh{LinkIndex: k.device, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT, HardwareAddr: at[:]}
	if to.IsValid() {
		n.IP = to.AsSlice()
	}
	return n
}

func (k *kernel) setForward(at mac, to netip.Addr) error {
	if old, there := k.current.forwards[at]; there && !old.IsValid() {
		if err := k.removeForward(at); err != nil {
			return err
		}
	}
	if err := k.NeighSet(k.forwardOf(at, to)); err != nil {
		return fmt.Errorf("failed to set the forwarding entry for %s at %s: %w", at, to, err)
	}
	k.current.forwards[at] = to
	k.count("forward", "set")
	return nil
}

func (k *kernel) removeForward(at mac) error {
	to := k.current.forwards[at]
	if !to.IsValid() {
		to = netip.IPv4Unspecified() // removes all entries for the hardware address
	}
	if err := ignoreNotFound(k.NeighDel(k.forwardOf(at, to))); err != nil {
		return fmt.Errorf("failed to remove the forwarding entry for %s: %w", at, err)
	}
	delete(k.current.forwards, at)
	k.count("forward", "remove")
	return nil
}

// failures collects the errors of one apply: the first maxErrors and the number of the others.
type failures struct {
	first []error
	more  int
}

func (f *failures) add(err error) {
	switch {
	case err == nil:
	case len(f.first) < maxErrors:
		f.first = append(f.first, err)
	default:
		f.more++
	}
}

func (f *failures) err() error {
	if f.more > 0 {
		return errors.Join(append(f.first, fmt.Errorf("and %d more like these", f.more))...)
	}
	return errors.Join(f.first...)
}
