package cluster

import (
	"slices"
	"strings"
	"testing"

	"skiff/internal/controller"
)

// What cannot be connected is refused before anything is touched, with the flag to look at.
func TestCheckNetwork(t *testing.T) {
	pods := func(cidrs ...string) func(*Config) { return func(c *Config) { c.Loops.ClusterCIDRs = cidrs } }
	services := func(cidrs ...string) func(*Config) { return func(c *Config) { c.ServiceCIDRs = cidrs } }
	mask := func(size int) func(*Config) { return func(c *Config) { c.Loops.NodeCIDRMaskSizeIPv4 = size } }
	ports := func(r string) func(*Config) { return func(c *Config) { c.NodePortRange = r } }
	both := func(changes ...func(*Config)) func(*Config) {
		return func(c *Config) {
			for _, change := range changes {
				change(c)
			}
		}
	}
	without := func(part string) func(*Config) { return func(c *Config) { c.Disable = append(c.Disable, part) } }
	for _, test := range []struct {
		want   string // nothing, if it can be done
		change func(*Config)
	}{
		{"", both()},
		{"", pods("10.44.0.0/16", "fd44::/48")},
		{"", services("10.44.0.0/28", "fd44::/64")},
		{"", both(services("fd44::/112", "10.44.0.0/16"), func(c *Config) { c.AdvertiseAddress = "fd00::1" })},
		{"", both(pods("10.42.0.0/24"), mask(24))},
		{"", both(pods("10.42.0.0/28"), mask(30))},
		{"", both(services("10.43.0.0/29"), without(PartDNS))},
		{"", both(services("10.43.0.0/29"), func(c *Config) { c.Controllers = nil })}, // nobody makes the Service of DNS here
		{"", both(mask(40), pods("10.42.0.0/28"), func(c *Config) { c.Loops.AllocateNodeCIDRs = false })},
		{"", ports("30000-30000")},

		{`--cluster-cidr: netip.ParsePrefix("pods")`, pods("pods")},
		{`--cluster-cidr: netip.ParsePrefix("10.42.0.0")`, pods("10.42.0.0")},
		{`--service-cluster-ip-range: netip.ParsePrefix("10.43.0.0/40")`, services("10.43.0.0/40")},
		{`--service-cluster-ip-range: netip.ParsePrefix("10.43.0.256/24")`, services("10.43.0.256/24")},
		{`--service-cluster-ip-range: netip.ParsePrefix("")`, services("")},
		{"--service-cluster-ip-range ::ffff:10.44.0.0/112: a range of IPv4 addresses is written as one, such as", services("::ffff:10.44.0.0/112")},
		{"--cluster-cidr 127.1.0.0/16 has addresses of 127.0.0.0/8, which are loopback", pods("127.1.0.0/16")},
		{"--service-cluster-ip-range 169.254.20.0/24 has addresses of 169.254.0.0/16, which are link-local", services("169.254.20.0/24")},
		{"--cluster-cidr ff02::/64 has addresses of ff00::/8, which are multicast", pods("ff02::/64")},
		{"--cluster-cidr 0.0.0.0/0 has addresses of 127.0.0.0/8, which are loopback", pods("0.0.0.0/0")},
		{"--cluster-cidr 10.42.0.0/16,10.44.0.0/16: there may be one range of each family", pods("10.42.0.0/16", "10.44.0.0/16")},
		{"--service-cluster-ip-range 10.43.0.0/16,fd43::/112,fd44::/112: there may be one range of each family", services("10.43.0.0/16", "fd43::/112", "fd44::/112")},

		{"--cluster-cidr 10.43.0.0/17 and --service-cluster-ip-range 10.43.0.0/16 overlap", pods("10.43.0.0/17")},
		{"--cluster-cidr 10.0.0.0/8 and --service-cluster-ip-range 10.43.0.0/16 overlap", pods("10.0.0.0/8")},
		{"--cluster-cidr 10.42.0.0/16 and --service-cluster-ip-range 10.42.8.0/24 overlap", services("10.42.8.7/24")},
		{"--cluster-cidr fd42::/48 and --service-cluster-ip-range fd42::/112 overlap", both(pods("10.42.0.0/16", "fd42::/48"), services("10.43.0.0/16", "fd42::/112"))},
		{"the node's address 10.42.3.4 is one of --cluster-cidr 10.42.0.0/16", func(c *Config) { c.Node.IP = "10.42.3.4" }},
		{"the node's address 10.43.3.4 is one of --service-cluster-ip-range 10.43.0.0/16", func(c *Config) { c.Node.IP = "10.43.3.4" }},

		{"--service-cluster-ip-range 10.44.0.0/30 is too small: it must have at least 8 addresses", services("10.44.0.0/30")},
		{"--service-cluster-ip-range fd43::/126 is too small: it must have at least 8 addresses", services("10.43.0.0/16", "fd43::/126")},
		{"--service-cluster-ip-range fd43::/48 is too wide: it can be a /64", services("10.43.0.0/16", "fd43::/48")},
		{"--service-cluster-ip-range 10.44.0.0/29 has no tenth address, which is that of DNS: use a wider one, or --disable dns", services("10.44.0.0/29")},
		{"the API is at 192.0.2.7 (--advertise-address), and the first of --service-cluster-ip-range, fd43::/112, is not of that family",
			both(services("fd43::/112", "10.43.0.0/16"), func(c *Config) { c.AdvertiseAddress = "192.0.2.7" })},

		{"--cluster-cidr 10.42.0.0/28 has no room for a node's range of /24 (--node-cidr-mask-size-ipv4)", both(pods("10.42.0.0/28"), mask(24))},
		{"--cluster-cidr 10.42.0.0/28 has no room for a node's range of /24", pods("10.42.0.0/28")},
		{"--node-cidr-mask-size-ipv4 31: a node's range of pod addresses is a /30 at the smallest", mask(31)},
		{"--node-cidr-mask-size-ipv4 -1: a node's range of pod addresses is a /30 at the smallest", mask(-1)},
		{"--cluster-cidr fd42::/80 has no room for a node's range of /64", pods("10.42.0.0/16", "fd42::/80")},
		{"--cluster-cidr fd42::/40 is too wide: it can be a /48", pods("10.42.0.0/16", "fd42::/40")},

		{`--service-node-port-range "many" is not a range of ports such as 30000-32767`, ports("many")},
		{`--service-node-port-range "0-10" is not a range of ports`, ports("0-10")},
		{`--service-node-port-range "40000-30000" is not a range of ports`, ports("40000-30000")},
		{`--service-node-port-range "30000-70000" is not a range of ports`, ports("30000-70000")},

		{`--overlay "ipip" is none of vxlan`, func(c *Config) { c.Network.Overlay = "ipip" }},
		{`--proxy-mode "ipvs" is none of nftables`, func(c *Config) { c.Network.ProxyMode = "ipvs" }},
		{`there is no part called "dnss"`, without("dnss")},
	} {
		c := Config{DataDir: t.TempDir(), AdvertiseAddress: "192.0.2.1", Controllers: []string{"*"}, Loops: controller.Config{AllocateNodeCIDRs: true}}
		test.change(&c)
		err := c.Complete()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("want %q, got %v", test.want, err)
		}
	}
}

// A range may be named by any of its addresses.
func TestRangesAreWrittenAsOthersWriteThem(t *testing.T) {
	given := []string{"10.43.1.2/16", "FD43:0::1/112"}
	c := Config{DataDir: t.TempDir(), AdvertiseAddress: "192.0.2.1", ServiceCIDRs: given, Loops: controller.Config{ClusterCIDRs: []string{"10.42.255.255/16"}}}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.ServiceCIDRs, []string{"10.43.0.0/16", "fd43::/112"}) || !slices.Equal(c.Loops.ClusterCIDRs, []string{"10.42.0.0/16"}) || given[0] != "10.43.1.2/16" {
		t.Errorf("services %v, pods %v, given %v", c.ServiceCIDRs, c.Loops.ClusterCIDRs, given)
	}
}

// The name server is at an address that services have, or nowhere.
func TestDNSAddress(t *testing.T) {
	for cidr, want := range map[string]string{"10.43.0.0/16": "10.43.0.10", "10.43.0.0/28": "10.43.0.10", "10.43.0.0/29": "", "fd43::/112": "fd43::a", "fd43::/125": ""} {
		if got := strings.Join(dnsAddress([]string{cidr}), ","); got != want {
			t.Errorf("of %s it is %q, want %q", cidr, got, want)
		}
	}
}

// A machine whose address could be a pod's or a service's cannot join.
func TestCheckNode(t *testing.T) {
	c := clusterConfig{PodCIDRs: []string{"10.42.0.0/16", "fd42::/56"}, ServiceCIDRs: []string{"10.43.0.0/16"}}
	const end = ", which the server was started with; --node-ip gives another address"
	for ip, want := range map[string]string{
		"192.0.2.1": "", "fd43::1": "",
		"10.42.9.9": "the node's address 10.42.9.9 is one of --cluster-cidr 10.42.0.0/16" + end,
		"fd42::1":   "the node's address fd42::1 is one of --cluster-cidr fd42::/56" + end,
		"10.43.0.1": "the node's address 10.43.0.1 is one of --service-cluster-ip-range 10.43.0.0/16" + end,
	} {
		got := ""
		if err := c.checkNode(ip); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", ip, got, want)
		}
	}
}

// Parts are left out once, however often it is said.
func TestDisable(t *testing.T) {
	c := Config{DataDir: t.TempDir(), Disable: []string{PartScheduler, PartDNS, PartMetrics}}
	for range 2 {
		if err := c.Complete(); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.Network; !n.disabled(PartDNS) || n.disabled(PartScheduler) || len(n.Disable) != 1 {
		t.Errorf("%v", n.Disable)
	}
}
