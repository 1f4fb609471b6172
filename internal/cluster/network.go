package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// Parts that --disable can leave out, for an add-on to take their place.
const (
	PartScheduler = "scheduler"
	PartOverlay   = "overlay"
	PartProxy     = "proxy"
	PartDNS       = "dns"
	PartMetrics   = "metrics"
	// PartLocalStorage is the default StorageClass. Without it volumes that there are already can still be mounted.
	PartLocalStorage = "local-storage"
)

// Parts can be left out of a server, NodeParts of a node.
var (
	NodeParts = []string{PartOverlay, PartProxy, PartDNS}
	Parts     = append([]string{PartScheduler, PartMetrics, PartLocalStorage}, NodeParts...)
)

// Overlays are the values of --overlay and ProxyModes those of --proxy-mode; the first is the default.
var (
	Overlays   = []string{"vxlan", "host-gw", "udp", "auto"}
	ProxyModes = []string{"nftables", "iptables", "userspace"}
)

// Ports of parts of the network on each node; all but the name server's are upstream's.
const (
	dnsPort          = 10053
	proxyHealthPort  = 10256
	proxyMetricsPort = 10249
)

// NetworkConfig configures the network of a cluster. All nodes have that of the server.
type NetworkConfig struct {
	Overlay   string   `json:"overlay,omitempty"`   // vxlan, host-gw, udp or auto; vxlan if empty
	ProxyMode string   `json:"proxyMode,omitempty"` // nftables, iptables or userspace; nftables if empty
	Disable   []string `json:"disable,omitempty"`   // parts that nodes do not run
}

func (c NetworkConfig) disabled(part string) bool { return slices.Contains(c.Disable, part) }

// withDisabled returns the configuration with more parts left out.
func (c NetworkConfig) withDisabled(disable []string) NetworkConfig {
	c.Disable = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(c.Disable), disable...))))
	return c
}

// checkParts fails if a part to leave out is not known.
func checkParts(disable, known []string) error {
	for _, part := range disable {
		if !slices.Contains(known, part) {
			return fmt.Errorf("--disable: there is no part called %q; there are %s", part, strings.Join(known, ", "))
		}
	}
	return nil
}
