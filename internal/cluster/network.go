package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Parts that can be left out, with --disable, and left to an add-on.
const (
	PartScheduler = "scheduler"
	PartOverlay   = "overlay"
	PartProxy     = "proxy"
	PartDNS       = "dns"
)

// Parts are those that can be left out of a server, NodeParts those that can be left out of a node.
var (
	NodeParts = []string{PartOverlay, PartProxy, PartDNS}
	Parts     = append([]string{PartScheduler}, NodeParts...)
)

// How nodes and services can be connected; the first is the default.
var (
	Overlays   = []string{"vxlan", "host-gw", "udp", "auto"}
	ProxyModes = []string{"nftables", "iptables", "userspace"}
)

// Ports that parts of the network have on each node; all but the name server's are upstream's.
const (
	dnsPort          = 10053
	proxyHealthPort  = 10256
	proxyMetricsPort = 10249
)

// NetworkConfig is how the nodes of a cluster are connected. All have the same, which is the server's.
type NetworkConfig struct {
	Overlay   string   `json:"overlay,omitempty"`   // vxlan, host-gw, udp or auto; vxlan if empty
	ProxyMode string   `json:"proxyMode,omitempty"` // nftables, iptables or userspace; nftables if empty
	Disable   []string `json:"disable,omitempty"`   // parts that nodes do not run
}

func (c NetworkConfig) disabled(part string) bool { return slices.Contains(c.Disable, part) }

// and is the same with more parts left out.
func (c NetworkConfig) and(disable []string) NetworkConfig {
	c.Disable = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(c.Disable), disable...))))
	return c
}

// checkParts says what is wrong with parts to leave out.
func checkParts(disable, known []string) error {
	for _, part := range disable {
		if !slices.Contains(known, part) {
			return fmt.Errorf("--disable: there is no part called %q; there are %s", part, strings.Join(known, ", "))
		}
	}
	return nil
}

// ranges are addresses that something has, by the flag that says so.
type ranges struct {
	flag string
	all  []netip.Prefix
}

func parseFlag(flag string, cidrs []string) (ranges, error) {
	r := ranges{flag: flag}
	families := map[bool]bool{}
	for _, cidr := range cidrs {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return r, fmt.Errorf("--%s: %w", flag, err)
		}
		if families[p.Addr().Is4()] {
			return r, fmt.Errorf("--%s %s: there may be one range of each family", flag, strings.Join(cidrs, ","))
		}
		families[p.Addr().Is4()] = true
		r.all = append(r.all, p.Masked())
	}
	return r, nil
}

// checkNetwork says what is wrong with how the cluster is to be connected.
func (c *Config) checkNetwork() error {
	if o := c.Network.Overlay; o != "" && !slices.Contains(Overlays, o) {
		return fmt.Errorf("--overlay %q is none of %s", o, strings.Join(Overlays, ", "))
	}
	if m := c.Network.ProxyMode; m != "" && !slices.Contains(ProxyModes, m) {
		return fmt.Errorf("--proxy-mode %q is none of %s", m, strings.Join(ProxyModes, ", "))
	}
	pods, err := parseFlag("cluster-cidr", c.Loops.ClusterCIDRs)
	if err != nil {
		return err
	}
	services, err := parseFlag("service-cluster-ip-range", c.ServiceCIDRs)
	if err != nil {
		return err
	}
	for _, p := range pods.all {
		for _, s := range services.all {
			if p.Overlaps(s) {
				return fmt.Errorf("--%s %s and --%s %s overlap", pods.flag, p, services.flag, s)
			}
		}
		if size := c.Loops.NodeCIDRMaskSizeIPv4; p.Addr().Is4() && size != 0 && p.Bits() > size {
			return fmt.Errorf("--%s %s has no room for a node's range of /%d (--node-cidr-mask-size-ipv4)", pods.flag, p, size)
		}
	}
	node, err := netip.ParseAddr(c.Node.IP)
	if err != nil {
		return nil // there is none, or it was refused already
	}
	for _, r := range []ranges{pods, services} {
		for _, p := range r.all {
			if p.Contains(node.Unmap()) {
				return fmt.Errorf("the node's address %s is one of --%s %s", node, r.flag, p)
			}
		}
	}
	return nil
}
