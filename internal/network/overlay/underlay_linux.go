package overlay

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// underlay returns the links that have the node's addresses. The outer address is IPv4 if the node has one: all nodes must choose the same
// family, whatever the order of their addresses.
func (k *kernel) underlay(addresses []netip.Addr) (underlay, error) {
	return findUnderlay(k.Handle, addresses)
}

func findUnderlay(h *netlink.Handle, addresses []netip.Addr) (u underlay, err error) {
	list, err := retry(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return u, fmt.Errorf("failed to list the addresses of the node's links: %w", err)
	}
	if u.ipv4, err = findLocalAddr(h, list, addresses, false); err != nil {
		return u, err
	}
	if u.ipv6, err = findLocalAddr(h, list, addresses, true); err != nil {
		return u, err
	}
	switch {
	case u.ipv4 != nil:
		u.outer = *u.ipv4
		return u, nil
	case u.ipv6 != nil:
		u.outer = *u.ipv6
		return u, nil
	case len(addresses) == 0:
		return u, fmt.Errorf("this node has no address by which other nodes reach it")
	}
	return defaultRouteUnderlay(h, addresses)
}

// findLocalAddr returns the link with the node's address of a family; nil if no link has it.
func findLocalAddr(h *netlink.Handle, list []netlink.Addr, addresses []netip.Addr, v6 bool) (*localAddr, error) {
	var p *localAddr
	for _, wanted := range addresses {
		for _, a := range list {
			if ip, ok := netip.AddrFromSlice(a.IP); ok && p == nil && ip.Unmap() == wanted && wanted.Is6() == v6 {
				p = &localAddr{address: wanted, link: a.LinkIndex}
			}
		}
	}
	if p == nil {
		return nil, nil
	}
	link, err := h.LinkByIndex(p.link)
	if err != nil {
		return nil, fmt.Errorf("failed to look up the link with the address %s: %w", p.address, err)
	}
	p.mtu = link.Attrs().MTU
	for _, a := range list {
		ip, ok := netip.AddrFromSlice(a.IP)
		bits, size := a.Mask.Size()
		if ok && a.LinkIndex == p.link && ip.Unmap().Is6() == v6 && bits < size && a.Peer == nil {
			p.segments = append(p.segments, netip.PrefixFrom(ip.Unmap(), bits).Masked())
		}
	}
	return p, nil
}

// defaultRouteUnderlay returns the link of the default route, for a node whose address is on none of its links because a NAT in front of it has it.
func defaultRouteUnderlay(h *netlink.Handle, addresses []netip.Addr) (underlay, error) {
	outer, has := ofFamily(addresses, false)
	family := netlink.FAMILY_V4
	if !has {
		outer, family = addresses[0], netlink.FAMILY_V6
	}
	routes, err := retry(func() ([]netlink.Route, error) { return h.RouteList(nil, family) })
	if err != nil {
		return underlay{}, fmt.Errorf("failed to list routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst != nil && !r.Dst.IP.IsUnspecified() || r.Type != unix.RTN_UNICAST || r.LinkIndex == 0 {
			continue
		}
		if link, err := h.LinkByIndex(r.LinkIndex); err == nil {
			p := localAddr{address: outer, link: r.LinkIndex, mtu: link.Attrs().MTU}
			u := underlay{outer: p, natted: true}
			if outer.Is6() {
				u.ipv6 = &p
			} else {
				u.ipv4 = &p
			}
			return u, nil
		}
	}
	return underlay{}, fmt.Errorf("no link of this node has its address %s, and there is no default route", outer)
}

// source returns the source address of encapsulated packets: the node's, or the unspecified address if no link has it.
func (u underlay) source() netip.Addr {
	switch {
	case !u.natted:
		return u.outer.address
	case u.outer.address.Is6():
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// MTU returns the MTU of pods for a backend and the addresses by which other nodes reach this one.
func MTU(backend string, nodeIPs []netip.Addr) (int, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	defer h.Close()
	u, err := findUnderlay(h, nodeIPs)
	if err != nil {
		return 0, err
	}
	return settings{backend: backend}.mtu(u.outer.mtu, u.outer.address.Is6()), nil
}
