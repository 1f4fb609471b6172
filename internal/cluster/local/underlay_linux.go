package local

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skiff/internal/network/podnet"
)

// Names in the underlay: the bridge, and the machine's port. Node.port has those of nodes. In a node its end is called eth0.
const bridgeName, hostPort, nodeLink = "nodes", "host", "eth0"

// ensureUnderlay makes what is missing of the network between the nodes and this machine.
func (l *Layout) ensureUnderlay() error {
	if !isNamespace(l.underlay()) {
		if err := l.freeSubnet(); err != nil {
			return err
		}
		if err := l.makeNamespace(); err != nil {
			return fmt.Errorf("failed to set up the nodes' network: %w", err)
		}
	}
	if err := inNetwork(l.underlay(), l.ensureBridge); err != nil {
		return fmt.Errorf("failed to set up the nodes' network: %w", err)
	}
	if err := l.connectMachine(); err != nil {
		return fmt.Errorf("failed to connect this machine to the nodes' network: %w", err)
	}
	return l.masquerade()
}

// isNamespace reports whether a namespace is mounted at a path.
func isNamespace(path string) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && s.Type == unix.NSFS_MAGIC
}

// makeNamespace makes a network namespace that is kept by a mount.
func (l *Layout) makeNamespace() error {
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(l.underlay(), nil, 0o600); err != nil {
		return err
	}
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return unix.Mount("/proc/thread-self/ns/net", l.underlay(), "", unix.MS_BIND, "")
	})
}

// ensureBridge makes the bridge. It runs in the underlay. The bridge itself has no address, and nothing listens there.
func (l *Layout) ensureBridge() error {
	for _, sysctl := range []string{"ipv6/conf/all/disable_ipv6=1", "ipv6/conf/default/disable_ipv6=1", "bridge/bridge-nf-call-iptables=0", "bridge/bridge-nf-call-ip6tables=0", "bridge/bridge-nf-call-arptables=0"} {
		name, value, _ := cutLast(sysctl, '=')
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	no := false
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = bridgeName
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes, MulticastSnooping: &no}); err != nil {
			return fmt.Errorf("failed to make the bridge: %w", err)
		}
		if bridge, err = netlink.LinkByName(bridgeName); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return err
	}
	return ensureCut()
}

func cutLast(s string, at byte) (before, after string, found bool) {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == at {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// connectMachine makes the port and the address of this machine.
func (l *Layout) connectMachine() error {
	link, err := netlink.LinkByName(l.device())
	if err == nil && !l.hasPort(hostPort) { // it was the port of an underlay that does not exist any more
		if err := netlink.LinkDel(link); err != nil {
			return err
		}
		link, err = nil, netlink.LinkNotFoundError{}
	}
	if err != nil {
		under, err := os.Open(l.underlay())
		if err != nil {
			return err
		}
		defer under.Close()
		if err := inNetwork(l.underlay(), func() error { return deleteLink(hostPort) }); err != nil {
			return err
		}
		attributes := netlink.NewLinkAttrs()
		attributes.Name, attributes.HardwareAddr, attributes.MTU = l.device(), hardware(l.gateway()), uplinkMTU()
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: hostPort, PeerNamespace: netlink.NsFd(int(under.Fd()))}); err != nil {
			return err
		}
		if link, err = netlink.LinkByName(l.device()); err != nil {
			return err
		}
	}
	if err := inNetwork(l.underlay(), func() error { return plug(hostPort) }); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	if err := netlink.AddrReplace(link, &netlink.Addr{IPNet: ipNet(l.gateway(), l.Subnet.Bits())}); err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

func ipNet(a netip.Addr, bits int) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen())}
}

// hasPort reports whether the underlay has a port.
func (l *Layout) hasPort(name string) bool {
	return inNetwork(l.underlay(), func() error { _, err := netlink.LinkByName(name); return err }) == nil
}

// deleteLink removes the interface of a name, if there is one.
func deleteLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	return netlink.LinkDel(link)
}

// plug makes an interface a port of the bridge. It runs in the underlay.
func plug(name string) error {
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	port, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if port.Attrs().MasterIndex != bridge.Attrs().Index {
		if err := netlink.LinkSetMaster(port, bridge); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(port)
}

// connect makes the interface, the address and the default route of a node, if it has none.
func (l *Layout) connect(m *machine) error {
	network := fmt.Sprintf("/proc/%d/ns/net", m.pid)
	has := inNetwork(network, func() error { _, err := netlink.LinkByName(nodeLink); return err }) == nil
	if !has || !l.hasPort(m.node.port()) {
		if err := inNetwork(network, func() error { return deleteLink(nodeLink) }); err != nil {
			return err
		}
		space, err := os.Open(network)
		if err != nil {
			return err
		}
		defer space.Close()
		mtu := uplinkMTU()
		err = inNetwork(l.underlay(), func() error {
			if err := deleteLink(m.node.port()); err != nil {
				return err
			}
			attributes := netlink.NewLinkAttrs()
			attributes.Name, attributes.MTU = m.node.port(), mtu
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: nodeLink, PeerHardwareAddr: hardware(m.node.Address),
				PeerMTU: uint32(mtu), PeerNamespace: netlink.NsFd(int(space.Fd()))})
		})
		if err != nil {
			return fmt.Errorf("failed to make the interface of node %s: %w", m.node.Name, err)
		}
	}
	if err := inNetwork(l.underlay(), func() error { return plug(m.node.port()) }); err != nil {
		return fmt.Errorf("failed to connect node %s to the nodes' network: %w", m.node.Name, err)
	}
	return inNetwork(network, func() error {
		link, err := netlink.LinkByName(nodeLink)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		if err := netlink.AddrReplace(link, &netlink.Addr{IPNet: ipNet(m.node.Address, l.Subnet.Bits())}); err != nil {
			return fmt.Errorf("failed to set the address of node %s: %w", m.node.Name, err)
		}
		if err := netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: l.gateway().AsSlice()}); err != nil {
			return fmt.Errorf("failed to set the default route of node %s: %w", m.node.Name, err)
		}
		return nil
	})
}

// uplinkMTU returns the MTU of the interface with this machine's default route, by which nodes' packets leave.
func uplinkMTU() int {
	const usual, least = 1500, 576
	return min(podnet.OutgoingMTU(least), usual)
}

// usedPrefixes returns the ranges that this machine has routes to, except the default route, and those of its own addresses.
func usedPrefixes(except string) (used []netip.Prefix, err error) {
	skip := -1
	if link, err := netlink.LinkByName(except); err == nil {
		skip = link.Attrs().Index
	}
	add := func(n *net.IPNet, link int) {
		if n == nil || link == skip {
			return
		}
		a, ok := netip.AddrFromSlice(n.IP.To4())
		if bits, _ := n.Mask.Size(); ok && bits > 0 {
			used = append(used, netip.PrefixFrom(a, bits).Masked())
		}
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		add(r.Dst, r.LinkIndex)
	}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	for _, a := range addresses {
		add(a.IPNet, a.LinkIndex)
	}
	return used, err
}

// freeSubnet fails if this machine has routes into the nodes' range of addresses.
func (l *Layout) freeSubnet() error {
	used, err := usedPrefixes(l.device())
	if err != nil {
		return err
	}
	for _, p := range used {
		if p.Overlaps(l.Subnet) {
			return fmt.Errorf("the nodes have addresses in %s, but this machine has a route to %s by now", l.Subnet, p)
		}
	}
	return nil
}

// removeUnderlay removes the nodes' network from this machine.
func (l *Layout) removeUnderlay() error {
	failed := errors.Join(deleteLink(l.device()), l.removeTable())
	for isNamespace(l.underlay()) {
		if err := unix.Unmount(l.underlay(), unix.MNT_DETACH); err != nil {
			return errors.Join(failed, fmt.Errorf("failed to set up the nodes' network: %w", err))
		}
	}
	if err := os.Remove(l.underlay()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		failed = errors.Join(failed, err)
	}
	if err := os.Remove(filepath.Clean(runDir)); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
		failed = errors.Join(failed, err)
	}
	return failed
}
