package overlay

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// underlay finds the links that have the node's addresses. IPv4 carries what is wrapped, if the node has an address of it: all nodes must choose
// alike, in whichever order they have their addresses.
func (k *kernel) underlay(addresses []netip.Addr) (underlay, error) {
	return findUnderlay(k.Handle, addresses)
}

func findUnderlay(h *netlink.Handle, addresses []netip.Addr) (u underlay, err error) {
	list, err := retry(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return u, fmt.Errorf("listing addresses: %w", err)
	}
	if u.ipv4, err = findPlace(h, list, addresses, false); err != nil {
		return u, err
	}
	if u.ipv6, err = findPlace(h, list, addresses, true); err != nil {
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
		return u, fmt.Errorf("this node has no address by which others reach it")
	}
	return wayOut(h, addresses)
}

// findPlace finds the link with the node's address of a family; nil if none has it.
func findPlace(h *netlink.Handle, list []netlink.Addr, addresses []netip.Addr, v6 bool) (*place, error) {
	var p *place
	for _, wanted := range addresses {
		for _, a := range list {
			if ip, ok := netip.AddrFromSlice(a.IP); ok && p == nil && ip.Unmap() == wanted && wanted.Is6() == v6 {
				p = &place{address: wanted, link: a.LinkIndex}
			}
		}
	}
	if p == nil {
		return nil, nil
	}
	link, err := h.LinkByIndex(p.link)
	if err != nil {
		return nil, fmt.Errorf("the link of %s: %w", p.address, err)
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

// wayOut is for a node whose address is on none of its links, as it is somebody else's who translates it. What is sent takes the default route.
func wayOut(h *netlink.Handle, addresses []netip.Addr) (underlay, error) {
	outer, has := ofFamily(addresses, false)
	family := netlink.FAMILY_V4
	if !has {
		outer, family = addresses[0], netlink.FAMILY_V6
	}
	routes, err := retry(func() ([]netlink.Route, error) { return h.RouteList(nil, family) })
	if err != nil {
		return underlay{}, fmt.Errorf("listing routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst != nil && !r.Dst.IP.IsUnspecified() || r.Type != unix.RTN_UNICAST || r.LinkIndex == 0 {
			continue
		}
		if link, err := h.LinkByIndex(r.LinkIndex); err == nil {
			p := place{address: outer, link: r.LinkIndex, mtu: link.Attrs().MTU}
			u := underlay{outer: p, absent: true}
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

// source is the address that wrapped packets come from: any, if the node's is not its own.
func (u underlay) source() netip.Addr {
	switch {
	case !u.absent:
		return u.outer.address
	case u.outer.address.Is6():
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// MTU is that of pods' links, for a backend and the addresses by which other nodes reach this one.
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
