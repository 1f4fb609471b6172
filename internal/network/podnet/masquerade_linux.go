package podnet

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"skiff/internal/network/nfttable"
)

// The nftables tables. cniTable is written by the CNI plugins that come with skiff: see internal/bundle/build/ip.
const (
	masqueradeTable = "skiff-masquerade"
	hostPortTable   = "skiff-hostports"
	cniTable        = "skiff-cni"
)

// EnsureMasquerade enables IP forwarding, and masquerades what pods send to addresses outside the pod CIDRs.
func EnsureMasquerade(podCIDRs []netip.Prefix) error {
	if err := forward(podCIDRs); err != nil {
		return err
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := nfttable.Anew(c, nftables.TableFamilyINet, masqueradeTable)
	chain := c.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	rule := func(exprs ...[]expr.Any) {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: join(exprs...)})
	}
	exempt := append([]netip.Prefix{netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("ff00::/8")}, podCIDRs...)
	for _, p := range exempt {
		rule(isFamily(p.Addr()), to(p), []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}})
	}
	for _, p := range podCIDRs {
		rule(isFamily(p.Addr()), from(p), masquerade())
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("failed to write nftables table %s: %w", masqueradeTable, err)
	}
	return nil
}

// forward enables IP forwarding for the families of the ranges.
func forward(ranges []netip.Prefix) error {
	for _, p := range ranges {
		file := "/proc/sys/net/ipv4/ip_forward"
		if p.Addr().Is6() {
			file = "/proc/sys/net/ipv6/conf/all/forwarding"
		}
		if err := os.WriteFile(file, []byte("1"), 0o644); err != nil {
			return fmt.Errorf("failed to enable IP forwarding, which pods need: %w", err)
		}
	}
	return nil
}
