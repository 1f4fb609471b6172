package overlay

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxErrors is how many failures are told of; there may be one for each node.
const maxErrors = 5

// apply brings the kernel from what it has to what the plan says. What cannot be done does not keep the rest from being done. First comes what
// routes rely on, then the routes, then what none of them needs any more: no packet is sent into the void on the way.
func (k *kernel) apply(p plan) error {
	f := &failures{}
	f.add(k.guard(p.sources))
	for at, to := range p.forwards {
		if k.have.forwards[at] != to {
			f.add(k.forward(at, to))
		}
	}
	for ip, at := range p.neighbours {
		if k.have.neighbours[ip] != at {
			f.add(k.neighbour(ip, at))
		}
	}
	k.tunnel.reaches(p.tunnels)
	for _, r := range k.have.strays {
		if err := gone(k.RouteDel(&r)); err != nil {
			f.add(fmt.Errorf("removing the route %v: %w", r, err))
		}
	}
	k.have.strays = nil // what could not be removed is found again: after a failure it is looked what there is
	for to, r := range p.routes {
		key := routeKey{to, r.unreachable()}
		if old, there := k.have.routes[key]; !there || old != r {
			f.add(k.route(key, r, there))
		}
	}
	for key, r := range k.have.routes {
		if wanted, ok := p.routes[key.to]; !ok || wanted.unreachable() != key.nobody {
			f.add(k.removeRoute(key, r))
		}
	}
	for ip := range k.have.neighbours {
		if _, ok := p.neighbours[ip]; !ok {
			f.add(k.removeNeighbour(ip))
		}
	}
	for at := range k.have.forwards {
		if _, ok := p.forwards[at]; !ok {
			f.add(k.removeForward(at))
		}
	}
	return f.err()
}

func (k *kernel) made(key routeKey, r route) *netlink.Route {
	out := &netlink.Route{Dst: ipNet(key.to), Protocol: protocol, Priority: metric(key), Type: unix.RTN_UNICAST, LinkIndex: r.dev, Table: unix.RT_TABLE_MAIN}
	if key.nobody {
		out.Type = unix.RTN_UNREACHABLE
		return out
	}
	if r.ours {
		out.LinkIndex = k.device
	}
	if r.via.IsValid() {
		out.Gw = r.via.AsSlice()
		if r.ours && r.via.Is4() {
			out.SetFlag(netlink.FLAG_ONLINK) // the neighbour entry says where it is; no address range does
		}
	} else {
		out.Scope = netlink.SCOPE_LINK
	}
	return out
}

func (k *kernel) route(key routeKey, r route, replace bool) error {
	do, action := k.RouteAdd, "add"
	if replace {
		do, action = k.RouteReplace, "change"
	}
	err := do(k.made(key, r))
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("there is a route to %s already that is not ours: remove it, or pods there cannot be reached", key.to)
	}
	if err != nil {
		return fmt.Errorf("the route to %s: %w", key.to, err)
	}
	k.have.routes[key] = r
	k.count("route", action)
	return nil
}

func (k *kernel) removeRoute(key routeKey, r route) error {
	if err := gone(k.RouteDel(k.made(key, r))); err != nil {
		return fmt.Errorf("removing the route to %s: %w", key.to, err)
	}
	delete(k.have.routes, key)
	k.count("route", "remove")
	return nil
}

func (k *kernel) neighbourOf(ip netip.Addr, at mac) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: k.device, State: netlink.NUD_PERMANENT, Type: unix.RTN_UNICAST, IP: ip.AsSlice(), HardwareAddr: at[:]}
}

func (k *kernel) neighbour(ip netip.Addr, at mac) error {
	if err := k.NeighSet(k.neighbourOf(ip, at)); err != nil {
		return fmt.Errorf("the neighbour %s at %s: %w", ip, at, err)
	}
	k.have.neighbours[ip] = at
	k.count("neighbour", "set")
	return nil
}

func (k *kernel) removeNeighbour(ip netip.Addr) error {
	if err := gone(k.NeighDel(k.neighbourOf(ip, k.have.neighbours[ip]))); err != nil {
		return fmt.Errorf("removing the neighbour %s: %w", ip, err)
	}
	delete(k.have.neighbours, ip)
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

func (k *kernel) forward(at mac, to netip.Addr) error {
	if old, there := k.have.forwards[at]; there && !old.IsValid() {
		if err := k.removeForward(at); err != nil {
			return err
		}
	}
	if err := k.NeighSet(k.forwardOf(at, to)); err != nil {
		return fmt.Errorf("the forwarding entry for %s at %s: %w", at, to, err)
	}
	k.have.forwards[at] = to
	k.count("forward", "set")
	return nil
}

func (k *kernel) removeForward(at mac) error {
	to := k.have.forwards[at]
	if !to.IsValid() {
		to = netip.IPv4Unspecified() // all of them
	}
	if err := gone(k.NeighDel(k.forwardOf(at, to))); err != nil {
		return fmt.Errorf("removing the forwarding entry for %s: %w", at, err)
	}
	delete(k.have.forwards, at)
	k.count("forward", "remove")
	return nil
}

// failures are those of a pass; the first few are told of.
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
