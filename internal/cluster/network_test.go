package cluster

import (
	"strings"
	"testing"
)

// What cannot be connected is refused before anything is touched, with the flag to look at.
func TestCheckNetwork(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"": func(*Config) {},
		"--cluster-cidr 10.43.0.0/17 and --service-cluster-ip-range 10.43.0.0/16 overlap": func(c *Config) { c.Loops.ClusterCIDRs = []string{"10.43.0.0/17"} },
		`--cluster-cidr: netip.ParsePrefix("pods")`:                                       func(c *Config) { c.Loops.ClusterCIDRs = []string{"pods"} },
		`--service-cluster-ip-range: netip.ParsePrefix("10.43.0.0/40")`:                   func(c *Config) { c.ServiceCIDRs = []string{"10.43.0.0/40"} },
		"there may be one range of each family":                                           func(c *Config) { c.Loops.ClusterCIDRs = []string{"10.42.0.0/16", "10.44.0.0/16"} },
		"--cluster-cidr 10.42.0.0/28 has no room for a node's range of /24": func(c *Config) {
			c.Loops.ClusterCIDRs, c.Loops.NodeCIDRMaskSizeIPv4 = []string{"10.42.0.0/28"}, 24
		},
		"the node's address 10.42.3.4 is one of --cluster-cidr 10.42.0.0/16": func(c *Config) { c.Node.IP = "10.42.3.4" },
		`--overlay "ipip" is none of vxlan`:                                  func(c *Config) { c.Network.Overlay = "ipip" },
		`--proxy-mode "ipvs" is none of nftables`:                            func(c *Config) { c.Network.ProxyMode = "ipvs" },
		`there is no part called "dnss"`:                                     func(c *Config) { c.Disable = []string{"dnss"} },
	} {
		c := Config{DataDir: t.TempDir()}
		change(&c)
		err := c.Complete()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// Parts are left out once, however often it is said.
func TestDisable(t *testing.T) {
	c := Config{DataDir: t.TempDir(), Disable: []string{PartScheduler, PartDNS}}
	for range 2 {
		if err := c.Complete(); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.Network; !n.disabled(PartDNS) || n.disabled(PartScheduler) || len(n.Disable) != 1 {
		t.Errorf("%v", n.Disable)
	}
}
