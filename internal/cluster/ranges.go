package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"skiff/internal/controller/node/nodeipam"
)

// ranges are addresses that something has, by the flag that says so.
type ranges struct {
	flag string
	all  []netip.Prefix
}

// special are addresses that mean something of their own everywhere.
var special = []struct {
	name string
	all  netip.Prefix
}{
	{"loopback", netip.MustParsePrefix("127.0.0.0/8")},
	{"loopback", netip.MustParsePrefix("::1/128")},
	{"link-local", netip.MustParsePrefix("169.254.0.0/16")},
	{"link-local", netip.MustParsePrefix("fe80::/10")},
	{"multicast", netip.MustParsePrefix("224.0.0.0/4")},
	{"multicast", netip.MustParsePrefix("ff00::/8")},
	{"unspecified", netip.MustParsePrefix("0.0.0.0/8")},
	{"unspecified", netip.MustParsePrefix("::/128")},
}

func parseFlag(flag string, cidrs []string) (ranges, error) {
	r := ranges{flag: flag}
	families := map[bool]bool{}
	for _, cidr := range cidrs {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return r, fmt.Errorf("--%s: %w", flag, err)
		}
		p = p.Masked()
		if p.Addr().Is4In6() {
			return r, fmt.Errorf("--%s %s: a range of IPv4 addresses is written as one, such as %s", flag, cidr, DefaultPodCIDR)
		}
		for _, s := range special {
			if p.Overlaps(s.all) {
				return r, fmt.Errorf("--%s %s has addresses of %s, which are %s", flag, cidr, s.all, s.name)
			}
		}
		if families[p.Addr().Is4()] {
			return r, fmt.Errorf("--%s %s: there may be one range of each family", flag, strings.Join(cidrs, ","))
		}
		families[p.Addr().Is4()] = true
		r.all = append(r.all, p)
	}
	return r, nil
}

// strings are the ranges as everybody writes them: without the part of an address that says which one it is.
func (r ranges) strings() (out []string) {
	for _, p := range r.all {
		out = append(out, p.String())
	}
	return out
}

// checkNetwork says what is wrong with how the cluster is to be connected.
func (c *Config) checkNetwork() error {
	if o := c.Network.Overlay; o != "" && !slices.Contains(Overlays, o) {
		return fmt.Errorf("--overlay %q is none of %s", o, strings.Join(Overlays, ", "))
	}
	if m := c.Network.ProxyMode; m != "" && !slices.Contains(ProxyModes, m) {
		return fmt.Errorf("--proxy-mode %q is none of %s", m, strings.Join(ProxyModes, ", "))
	}
	if r, err := utilnet.ParsePortRange(c.NodePortRange); err != nil || r.Base < 1 {
		return fmt.Errorf("--service-node-port-range %q is not a range of ports such as %s", c.NodePortRange, DefaultNodePorts)
	}
	pods, err := parseFlag("cluster-cidr", c.Loops.ClusterCIDRs)
	if err != nil {
		return err
	}
	services, err := parseFlag("service-cluster-ip-range", c.ServiceCIDRs)
	if err != nil {
		return err
	}
	c.Loops.ClusterCIDRs, c.ServiceCIDRs = pods.strings(), services.strings()
	for _, p := range pods.all {
		for _, s := range services.all {
			if p.Overlaps(s) {
				return fmt.Errorf("--%s %s and --%s %s overlap", pods.flag, p, services.flag, s)
			}
		}
	}
	if err := c.checkServices(services); err != nil {
		return err
	}
	if err := c.checkPods(pods); err != nil {
		return err
	}
	return checkNodeAddress(c.Node.IP, pods, services)
}

// checkServices says what is wrong with the ranges of cluster IPs. What they are too small or too wide for would otherwise show when the first Service,
// that of the API, gets no address.
func (c *Config) checkServices(services ranges) error {
	const (
		fewest = 3  // bits: eight addresses, as upstream
		widest = 64 // bits: addresses are given out of no wider range, as upstream
	)
	for _, s := range services.all {
		switch bits := s.Addr().BitLen() - s.Bits(); {
		case bits < fewest:
			return fmt.Errorf("--%s %s is too small: it must have at least %d addresses", services.flag, s, 1<<fewest)
		case bits > widest:
			return fmt.Errorf("--%s %s is too wide: it can be a /%d", services.flag, s, s.Addr().BitLen()-widest)
		}
	}
	first := services.all[0]
	if address, err := netip.ParseAddr(c.AdvertiseAddress); err == nil && address.Unmap().Is4() != first.Addr().Is4() {
		return fmt.Errorf("the API is at %s (--advertise-address), and the first of --%s, %s, is not of that family", address, services.flag, first)
	}
	names := (len(c.Controllers) > 0 || c.Node.Run) && !c.Network.disabled(PartDNS)
	if names && len(dnsAddress(c.ServiceCIDRs)) == 0 {
		return fmt.Errorf("--%s %s has no tenth address, which is that of DNS: use a wider one, or --disable %s", services.flag, first, PartDNS)
	}
	return nil
}

// checkPods says what is wrong with the ranges that nodes get theirs of.
func (c *Config) checkPods(pods ranges) error {
	if !c.Loops.AllocateNodeCIDRs {
		return nil
	}
	const (
		usual, mask6 = 24, 64 // a node's range
		longest      = 30     // that has an address for a pod: others are the node's own and for broadcasts
		most         = 16     // bits that tell nodes apart, in IPv6, as upstream
	)
	mask, flag := cmp.Or(c.Loops.NodeCIDRMaskSizeIPv4, usual), "node-cidr-mask-size-ipv4"
	for _, p := range pods.all {
		switch bits := p.Bits(); {
		case p.Addr().Is4() && (mask < 1 || mask > longest):
			return fmt.Errorf("--%s %d: a node's range of pod addresses is a /%d at the smallest, and usually a /%d", flag, mask, longest, usual)
		case p.Addr().Is4() && bits > mask:
			return fmt.Errorf("--%s %s has no room for a node's range of /%d (--%s)", pods.flag, p, mask, flag)
		case p.Addr().Is6() && bits > mask6:
			return fmt.Errorf("--%s %s has no room for a node's range of /%d", pods.flag, p, mask6)
		case p.Addr().Is6() && bits < mask6-most:
			return fmt.Errorf("--%s %s is too wide: it can be a /%d", pods.flag, p, mask6-most)
		}
	}
	return nodeipam.Check(c.Loops)
}

// checkNodeAddress says whether a node has an address that a pod or a service could get.
func checkNodeAddress(ip string, all ...ranges) error {
	node, err := netip.ParseAddr(ip)
	if err != nil {
		return nil // there is none, or it was refused already
	}
	for _, r := range all {
		for _, p := range r.all {
			if p.Contains(node.Unmap()) {
				return fmt.Errorf("the node's address %s is one of --%s %s", node, r.flag, p)
			}
		}
	}
	return nil
}
