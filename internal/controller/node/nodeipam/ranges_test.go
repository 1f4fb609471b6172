package nodeipam

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"skiff/internal/controller"
	"skiff/test/seed"
)

func TestRangesInOrder(t *testing.T) {
	for _, c := range []struct {
		cluster string
		bits    int
		taken   []string
		want    []string // all node CIDRs
	}{
		{"10.0.0.0/22", 24, nil, []string{"10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24"}},
		{"10.0.0.0/22", 24, []string{"10.0.1.0/24", "10.0.3.128/25"}, []string{"10.0.0.0/24", "10.0.2.0/24"}},
		{"10.0.0.0/22", 24, []string{"10.0.2.0/23"}, []string{"10.0.0.0/24", "10.0.1.0/24"}},
		{"10.0.0.0/22", 24, []string{"10.0.0.0/23"}, []string{"10.0.2.0/24", "10.0.3.0/24"}},
		{"10.0.0.0/22", 24, []string{"10.0.0.0/8"}, nil},
		{"10.0.0.0/24", 24, nil, []string{"10.0.0.0/24"}},
		{"10.1.0.0/30", 32, []string{"10.1.0.2/32"}, []string{"10.1.0.0/32", "10.1.0.1/32", "10.1.0.3/32"}},
		{"fd00:1::/62", 64, []string{"fd00:1:0:2::/64"}, []string{"fd00:1::/64", "fd00:1:0:1::/64", "fd00:1:0:3::/64"}},
		{"fd00:1::/79", 80, nil, []string{"fd00:1::/80", "fd00:1:0:0:1::/80"}},
		{"fd00:1::/63", 65, nil, []string{"fd00:1::/65", "fd00:1:0:0:8000::/65", "fd00:1:0:1::/65", "fd00:1:0:1:8000::/65"}},
		{"fd00:1::/126", 128, []string{"fd00:1::/127"}, []string{"fd00:1::2/128", "fd00:1::3/128"}},
	} {
		r, err := newRanges(netip.MustParsePrefix(c.cluster), c.bits)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range c.taken {
			if err := r.take(netip.MustParsePrefix(p)); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for p, err := r.allocate(); err == nil; p, err = r.allocate() {
			got = append(got, p.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s without %v: got %v, want %v", c.cluster, c.taken, got, c.want)
		}
		if len(got) > 0 {
			r.free(netip.MustParsePrefix(got[0]))
			if p, err := r.allocate(); err != nil || p.String() != got[0] {
				t.Errorf("%s: the one that came free is %s, got %v, %v", c.cluster, got[0], p, err)
			}
		}
	}
}

// Allocated CIDRs never overlap with taken ones, whatever the order of operations, and every free one is found.
func TestRangesNeverOverlap(t *testing.T) {
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, cluster := range []string{"10.16.0.0/18", "fd00:10:20::/57"} {
		bits := 64
		if p := netip.MustParsePrefix(cluster); p.Addr().Is4() {
			bits = 24
		}
		r, err := newRanges(netip.MustParsePrefix(cluster), bits)
		if err != nil {
			t.Fatal(err)
		}
		var taken []netip.Prefix
		for range 3000 {
			switch random.IntN(4) {
			case 0: // a CIDR is taken by others, wide or small
				p := netip.PrefixFrom(r.at(random.Uint64N(r.count)).Addr(), bits-1+random.IntN(4)).Masked()
				if !slices.ContainsFunc(taken, p.Overlaps) && r.take(p) == nil {
					taken = append(taken, p)
				}
			case 1, 2:
				p, err := r.allocate()
				if i := slices.IndexFunc(taken, p.Overlaps); err == nil && i >= 0 {
					t.Fatalf("gave out %v while %v was taken", p, taken[i])
				}
				if err == nil {
					taken = append(taken, p)
					continue
				}
				for n := range r.count {
					if !slices.ContainsFunc(taken, r.at(n).Overlaps) {
						t.Fatalf("%v although %v is free", err, r.at(n))
					}
				}
			case 3:
				if len(taken) > 0 {
					i := random.IntN(len(taken))
					r.free(taken[i])
					taken = slices.Delete(taken, i, i+1)
				}
			}
		}
	}
}

func TestCheck(t *testing.T) {
	config := func(change func(*controller.Config)) controller.Config {
		c := controller.Config{AllocateNodeCIDRs: true, ClusterCIDRs: []string{"10.244.0.0/16"}}
		change(&c)
		return c
	}
	for want, c := range map[string]controller.Config{
		"": config(func(*controller.Config) {}),
		"Controller: Must specify --cluster-cidr if --allocate-node-cidrs is set": config(func(c *controller.Config) { c.ClusterCIDRs = nil }),
		"--cluster-cidr: invalid CIDR address: everything":                        config(func(c *controller.Config) { c.ClusterCIDRs[0] = "everything" }),
		"--service-cluster-ip-range: invalid CIDR address: x":                     config(func(c *controller.Config) { c.ServiceCIDRs = []string{"x"} }),
		"New CIDR set failed; the node CIDR size is too big":                      config(func(c *controller.Config) { c.ClusterCIDRs[0] = "fd00::/40" }),
		"Controller: Invalid --cluster-cidr, mask size of cluster CIDR must be less than or equal to --node-cidr-mask-size configured for CIDR family": config(func(c *controller.Config) {
			c.NodeCIDRMaskSizeIPv4 = 12
		}),
		"--cluster-cidr: expected one range, or one of each IP family, got [10.0.0.0/16 10.1.0.0/16]": config(func(c *controller.Config) {
			c.ClusterCIDRs = []string{"10.0.0.0/16", "10.1.0.0/16"}
		}),
	} {
		got := ""
		if err := Check(c); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
