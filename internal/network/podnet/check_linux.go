package podnet

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// check executes CHECK: it returns an error that names the first thing that is not as add made it.
func (s *Server) check(c call) error {
	made := c.config.PrevResult
	if made == nil {
		return refuse(codeConfig, "CNI does not say what is to be checked: prevResult is missing")
	}
	for _, ip := range made.IPs {
		if !s.addresses.has(c.owner, ip.Address.Addr()) {
			return fmt.Errorf("%s is not %s's address", ip.Address.Addr(), c.sandbox)
		}
	}
	namespace, pod, err := s.links.enter(c.namespace)
	if err != nil {
		return err
	}
	defer namespace.Close()
	defer pod.Close()
	inner := slices.IndexFunc(made.Interfaces, func(l resultLink) bool { return l.Name == c.link && l.Sandbox == c.namespace })
	outer := slices.IndexFunc(made.Interfaces, func(l resultLink) bool { return l.Sandbox == "" })
	if inner < 0 || outer < 0 {
		return refuse(codeConfig, "prevResult does not have %s in %s and its other end", c.link, c.namespace)
	}
	node, err := openNetlink(s.links.nodeNamespace)
	if err != nil {
		return err
	}
	defer node.Close()
	other, err := checkLink(node, made.Interfaces[outer])
	if err != nil {
		return err
	}
	link, err := checkLink(pod, made.Interfaces[inner])
	if err != nil {
		return err
	}
	for _, ip := range made.IPs {
		if err := checkAddress(pod, link, ip.Address); err != nil {
			return err
		}
		if err := checkRoute(node, other, hostPrefix(ip.Address.Addr())); err != nil {
			return fmt.Errorf("on the node: %w", err)
		}
	}
	for _, route := range made.Routes {
		if err := checkRoute(pod, link, route.Dst); err != nil {
			return fmt.Errorf("in the pod: %w", err)
		}
	}
	return nil
}

func checkLink(in *netlink.Handle, want resultLink) (netlink.Link, error) {
	link, err := in.LinkByName(want.Name)
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", want.Name, err)
	}
	if link.Type() != "veth" || want.Mac != "" && link.Attrs().HardwareAddr.String() != want.Mac {
		return nil, fmt.Errorf("link %s is another one, of type %s and with address %s", want.Name, link.Type(), link.Attrs().HardwareAddr)
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		return nil, fmt.Errorf("link %s is down", want.Name)
	}
	return link, nil
}

func checkAddress(in *netlink.Handle, link netlink.Link, want netip.Prefix) error {
	all, err := in.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(a netlink.Addr) bool { return a.IPNet.String() == want.String() }) {
		return fmt.Errorf("link %s does not have the address %s", link.Attrs().Name, want)
	}
	return nil
}

func checkRoute(in *netlink.Handle, link netlink.Link, want netip.Prefix) error {
	family := netlink.FAMILY_V4
	if want.Addr().Is6() {
		family = netlink.FAMILY_V6
	}
	all, err := in.RouteList(link, family)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(r netlink.Route) bool {
		return r.Dst == nil && want.Bits() == 0 || r.Dst != nil && r.Dst.String() == want.String()
	}) {
		return fmt.Errorf("there is no route to %s by link %s", want, link.Attrs().Name)
	}
	return nil
}
