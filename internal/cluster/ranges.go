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

// flagRanges are the address ranges that a flag has.
type flagRanges struct {
	flag     string
	prefixes []netip.Prefix
}

// reservedRanges are address ranges with a meaning of their own, which no flag may overlap.
var reservedRanges = []struct {
	name   string
	prefix netip.Prefix
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

// parseFlag parses the ranges of a flag, of which there may be one of each IP family.
func parseFlag(flag string, cidrs []string) (flagRanges, error) {
	r := flagRanges{flag: flag}
	families := map[bool]bool{} // by whether it is IPv4
	for _, cidr := range cidrs {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return r, fmt.Errorf("--%s: %w", flag, err)
		}
		p = p.Masked()
		if p.Addr().Is4In6() {
			return r, fmt.Errorf("--%s %s: a range of IPv4 addresses is written as one, such as %s", flag, cidr, DefaultPodCIDR)
		}
		for _, reserved := range reservedRanges {
			if p.Overlaps(reserved.prefix) {
				return r, fmt.Errorf("--%s %s has addresses of %s, which are %s", flag, cidr, reserved.prefix, reserved.name)
			}
		}
		if families[p.Addr().Is4()] {
			return r, fmt.Errorf("--%s %s: there may be one range of each family", flag, strings.Join(cidrs, ","))
		}
		families[p.Addr().Is4()] = true
		r.prefixes = append(r.prefixes, p)
	}
	return r, nil
}

// strings returns the ranges in CIDR notation, with host bits cleared.
func (r flagRanges) strings() (out []string) {
	for _, p := range r.prefixes {
		out = append(out, p.String())
	}
	return out
}

// checkNetwork fails if the configuration of the network is invalid, and writes its ranges in CIDR notation with host bits cleared.
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
	for _, p := range pods.prefixes {
		for _, s := range services.prefixes {
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

// checkServices fails if the ranges of cluster IPs are invalid. Otherwise that would show only when the first Service, that of the API, gets no address.
func (c *Config) checkServices(services flagRanges) error {
	const (
		minHostBits = 3  // eight addresses, as upstream
		maxHostBits = 64 // as upstream, whose allocator takes no wider range
	)
	for _, s := range services.prefixes {
		switch bits := s.Addr().BitLen() - s.Bits(); {
		case bits < minHostBits:
			return fmt.Errorf("--%s %s is too small: it must have at least %d addresses", services.flag, s, 1<<minHostBits)
		case bits > maxHostBits:
			return fmt.Errorf("--%s %s is too wide: it can be a /%d", services.flag, s, s.Addr().BitLen()-maxHostBits)
		}
	}
	first := services.prefixes[0]
	if address, err := netip.ParseAddr(c.AdvertiseAddress); err == nil && address.Unmap().Is4() != first.Addr().Is4() {
		return fmt.Errorf("the API is at %s (--advertise-address), and the first of --%s, %s, is not of that family", address, services.flag, first)
	}
	needsDNS := (len(c.Controllers) > 0 || c.Node.Run) && !c.Network.disabled(PartDNS)
	if needsDNS && len(dnsAddress(c.ServiceCIDRs)) == 0 {
		return fmt.Errorf("--%s %s has no tenth address, which is that of DNS: use a wider one, or --disable %s", services.flag, first, PartDNS)
	}
	return nil
}

// checkPods fails if nodes cannot get ranges of pod addresses out of the cluster's.
func (c *Config) checkPods(pods flagRanges) error {
	if !c.Loops.AllocateNodeCIDRs {
		return nil
	}
	const (
		defaultMask, mask6 = 24, 64 // prefix lengths of a node's range
		maxMask            = 30     // the longest with an address for a pod: others are the node's own and for broadcasts
		maxNodeBits        = 16     // bits of an IPv6 range that tell nodes apart, as upstream
	)
	mask, flag := cmp.Or(c.Loops.NodeCIDRMaskSizeIPv4, defaultMask), "node-cidr-mask-size-ipv4"
	for _, p := range pods.prefixes {
		switch bits := p.Bits(); {
		case p.Addr().Is4() && (mask < 1 || mask > maxMask):
			return fmt.Errorf("--%s %d: a node's range of pod addresses is a /%d at the smallest, and usually a /%d", flag, mask, maxMask, defaultMask)
		case p.Addr().Is4() && bits > mask:
			return fmt.Errorf("--%s %s has no room for a node's range of /%d (--%s)", pods.flag, p, mask, flag)
		case p.Addr().Is6() && bits > mask6:
			return fmt.Errorf("--%s %s has no room for a node's range of /%d", pods.flag, p, mask6)
		case p.Addr().Is6() && bits < mask6-maxNodeBits:
			return fmt.Errorf("--%s %s is too wide: it can be a /%d", pods.flag, p, mask6-maxNodeBits)
		}
	}
	return nodeipam.Check(c.Loops)
}

// checkNodeAddress fails if the address of a node is one that a pod or a Service could get.
func checkNodeAddress(ip string, all ...flagRanges) error {
	node, err := netip.ParseAddr(ip)
	if err != nil {
		return nil // the node has none, or it was refused before
	}
	for _, r := range all {
		for _, p := range r.prefixes {
			if p.Contains(node.Unmap()) {
				return fmt.Errorf("the node's address %s is one of --%s %s", node, r.flag, p)
			}
		}
	}
	return nil
}
