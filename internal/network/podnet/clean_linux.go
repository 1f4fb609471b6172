package podnet

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"skiff/internal/network/nfttable"
)

// OutgoingMTU returns the MTU of the link of the default route, if it is not less than least; otherwise 1500.
func OutgoingMTU(least int) int {
	const usual = 1500
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return usual
	}
	for _, r := range routes {
		if r.Dst != nil && !r.Dst.IP.IsUnspecified() {
			continue
		}
		if link, err := netlink.LinkByIndex(r.LinkIndex); err == nil && link.Attrs().MTU >= least {
			return link.Attrs().MTU
		}
	}
	return usual
}

// Clean removes the pod network: tables, remaining links, bridges of plugins, the CNI configuration and the addresses in use. There must be no
// more pods. IP forwarding stays enabled: other programs may rely on it by now.
func (c Config) Clean() error {
	nets, err := networks(c.Dir)
	if err != nil {
		return err
	}
	failed := errors.Join(
		nfttable.Remove(nftables.TableFamilyINet, masqueradeTable, hostPortTable, cniTable),
		removeLinks(c.PodCIDRs),
	)
	if len(nets) > 0 { // the runtime used the first one
		failed = errors.Join(failed, removeBridges(nets[0]), removeAddressState(nets[0]))
	}
	return errors.Join(failed, os.RemoveAll(c.State), ignoreMissing(os.Remove(filepath.Join(c.Dir, fileName))))
}

// removeLinks removes the node's ends of pods' links: the veth links with an address in the ranges or a route to one.
func removeLinks(ranges []netip.Prefix) error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	within := func(ip []byte) bool {
		a, ok := netip.AddrFromSlice(ip)
		return ok && slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
	}
	var failed error
	for _, link := range links {
		if link.Type() != "veth" {
			continue
		}
		addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			failed = errors.Join(failed, ignoreMissing(err))
			continue
		}
		isPodLink := slices.ContainsFunc(addresses, func(a netlink.Addr) bool { return within(a.IP) }) ||
			slices.ContainsFunc(routes, func(r netlink.Route) bool {
				return r.LinkIndex == link.Attrs().Index && r.Dst != nil && within(r.Dst.IP)
			})
		if isPodLink {
			failed = errors.Join(failed, ignoreMissing(netlink.LinkDel(link)))
		}
	}
	return failed
}

// removeBridges removes the bridges of a network, unless something is still connected to them.
func removeBridges(n network) error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	var failed error
	for _, p := range n.Plugins {
		if p.Type != "bridge" {
			continue
		}
		name := p.Bridge
		if name == "" {
			name = "cni0"
		}
		i := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Name == name && l.Type() == "bridge" })
		if i < 0 {
			continue
		}
		index := links[i].Attrs().Index
		if !slices.ContainsFunc(links, func(l netlink.Link) bool { return l.Attrs().MasterIndex == index }) {
			failed = errors.Join(failed, ignoreMissing(netlink.LinkDel(links[i])))
		}
	}
	return failed
}

// removeAddressState removes the state of host-local and of the CNI library about a network.
func removeAddressState(n network) error {
	if n.Name == "" || strings.ContainsAny(n.Name, "/*?[") {
		return nil
	}
	var failed error
	for _, p := range n.Plugins {
		if p.IPAM.DataDir != "" {
			failed = errors.Join(failed, os.RemoveAll(filepath.Join(p.IPAM.DataDir, n.Name)))
		}
	}
	failed = errors.Join(failed, os.RemoveAll(filepath.Join(cniState, "networks", n.Name)))
	results, err := filepath.Glob(filepath.Join(cniState, "results", n.Name+"-*"))
	for _, path := range results {
		err = errors.Join(err, os.Remove(path))
	}
	for _, dir := range []string{filepath.Join(cniState, "networks"), filepath.Join(cniState, "results"), cniState} {
		if e := os.Remove(dir); !errors.Is(e, syscall.ENOTEMPTY) && !errors.Is(e, syscall.EBUSY) { // EBUSY: something is mounted there
			err = errors.Join(err, ignoreMissing(e))
		}
	}
	return errors.Join(failed, err)
}

func ignoreMissing(err error) error {
	var link netlink.LinkNotFoundError
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENODEV) || errors.As(err, &link) {
		return nil
	}
	return err
}
