package cluster

import (
	"fmt"
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
