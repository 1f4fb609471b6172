package overlay

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ensureDevice makes sure that the overlay's interface exists, is configured as the plan says, is up and has its addresses.
func (k *kernel) ensureDevice(u underlay, p plan, self *node) error {
	name := k.settings.device()
	if name == "" {
		k.device = 0
		return nil
	}
	var link netlink.Link
	var err error
	if name == tunDevice {
		link, err = k.ensureTUN(u)
	} else {
		link, err = k.ensureVXLAN(u)
	}
	if err != nil {
		return err
	}
	k.device = link.Attrs().Index
	v6 := slices.ContainsFunc(p.addresses, func(a netip.Prefix) bool { return a.Addr().Is6() })
	if err := k.deviceSysctls(name, v6); err != nil {
		return err
	}
	if link.Attrs().MTU != p.mtu {
		if err := k.LinkSetMTU(link, p.mtu); err != nil {
			return fmt.Errorf("failed to set the MTU of %s to %d: %w", name, p.mtu, err)
		}
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		if err := k.LinkSetUp(link); err != nil {
			return fmt.Errorf("failed to set the interface %s up: %w", name, err)
		}
	}
	if self == nil || len(self.ranges) == 0 {
		return nil // the node has no pod CIDRs yet: the interface keeps the addresses from when skiff ran before
	}
	return k.ensureAddresses(link, p.addresses)
}

// ensureVXLAN returns the VXLAN interface. It creates it if it is missing or configured differently. It is bound to no link, so that it
// survives changes of links.
func (k *kernel) ensureVXLAN(u underlay) (netlink.Link, error) {
	nodeMAC := macOf(k.name)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = vxlanDevice, nodeMAC[:]
	want := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: k.vni, Port: k.vxlanPort, SrcAddr: u.source().AsSlice()}
	found, err := k.find(vxlanDevice)
	if err != nil {
		return nil, err
	}
	if found != nil {
		if v, ok := found.(*netlink.Vxlan); ok && sameVXLAN(v, want) {
			return v, nil
		}
		if err := ignoreNotFound(k.LinkDel(found)); err != nil {
			return nil, fmt.Errorf("failed to remove the interface %s, which is configured differently: %w", vxlanDevice, err)
		}
	}
	err = k.LinkAdd(want)
	if errors.Is(err, unix.EEXIST) {
		return nil, k.vxlanConflict(want)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, fmt.Errorf("this kernel does not support VXLAN: choose the overlay backend host-gw or udp, which do not need it: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to create the interface %s: %w", vxlanDevice, err)
	}
	return k.LinkByName(vxlanDevice)
}

func sameVXLAN(have, want *netlink.Vxlan) bool {
	source := have.SrcAddr
	if source == nil {
		source = net.IPv4zero
	}
	return have.VxlanId == want.VxlanId && have.Port == want.Port && source.Equal(want.SrcAddr) && !have.Learning &&
		have.Group == nil && have.VtepDevIndex == 0 && bytes.Equal(have.HardwareAddr, want.HardwareAddr)
}

// vxlanConflict returns an error that names the interface which has the VNI and port already, most likely another overlay's.
func (k *kernel) vxlanConflict(want *netlink.Vxlan) error {
	links, err := retry(k.LinkList)
	if err != nil {
		return err
	}
	for _, l := range links {
		if v, ok := l.(*netlink.Vxlan); ok && v.VxlanId == want.VxlanId && v.Port == want.Port {
			return fmt.Errorf("interface %s has VXLAN network %d on UDP port %d already: remove it, or choose another port or network for skiff", v.Name, v.VxlanId, v.Port)
		}
	}
	return fmt.Errorf("VXLAN network %d on UDP port %d is taken", want.VxlanId, want.Port)
}

// find returns the link with a name; nil if there is none.
func (k *kernel) find(name string) (netlink.Link, error) {
	link, err := k.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to look up the interface %s: %w", name, err)
	}
	return link, nil
}

// ensureAddresses sets the addresses of the overlay's interface: the first of each of the node's ranges, which no pod has. They are the source
// of what the node itself sends to pods on other nodes, so that answers come back the same way.
func (k *kernel) ensureAddresses(link netlink.Link, want []netip.Prefix) error {
	list, err := retry(func() ([]netlink.Addr, error) { return k.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("failed to list the addresses of %s: %w", link.Attrs().Name, err)
	}
	have := map[netip.Prefix]bool{}
	for _, a := range list {
		ip, _ := netip.AddrFromSlice(a.IP)
		bits, _ := a.Mask.Size()
		p := netip.PrefixFrom(ip.Unmap(), bits)
		if slices.Contains(want, p) {
			have[p] = true
		} else if !ip.IsLinkLocalUnicast() {
			if err := ignoreNotFound(k.AddrDel(link, &a)); err != nil {
				return fmt.Errorf("failed to remove the address %s from %s: %w", p, link.Attrs().Name, err)
			}
		}
	}
	for _, p := range want {
		if have[p] {
			continue
		}
		a := &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE}
		if err := k.AddrAdd(link, a); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("failed to add the address %s to %s: %w", p, link.Attrs().Name, err)
		}
	}
	return nil
}

// removeUnused removes the interfaces of other backends, which skiff ran with before, and the guard if the backend has no interface.
func (k *kernel) removeUnused() error {
	for _, name := range []string{vxlanDevice, tunDevice} {
		if name == k.settings.device() {
			continue
		}
		if err := removeDevice(k.Handle, name); err != nil {
			return err
		}
	}
	if k.settings.device() == "" {
		return removeGuard()
	}
	return nil
}

func removeDevice(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	if err == nil {
		err = h.LinkDel(link)
	}
	if err := ignoreNotFound(err); err != nil {
		return fmt.Errorf("failed to remove the interface %s: %w", name, err)
	}
	return nil
}
