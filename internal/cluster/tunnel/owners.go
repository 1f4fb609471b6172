package tunnel

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// maxListed is how many addresses and ranges of one node are used, as in the overlay.
const maxListed = 8

// owners maps addresses to nodes. A node writes the addresses of its own status, so they alone prove nothing.
type owners struct {
	addresses map[netip.Addr]string
	ranges    []ownedRange
}

type ownedRange struct {
	netip.Prefix
	node string
}

// of returns the node that an address belongs to; empty if it is no node's.
func (o *owners) of(ip netip.Addr) string {
	if o == nil {
		return ""
	}
	if node, ok := o.addresses[ip]; ok {
		return node
	}
	for _, r := range o.ranges {
		if r.Contains(ip) {
			return r.node
		}
	}
	return ""
}

// decideOwners decides which node has which address, and returns the claims of nodes that it refuses. It is a pure function.
//
// A range is a node's if it was allocated to it (spec.podCIDRs, which nodes cannot write), is within the cluster's, and overlaps none of an older node: as the overlay
// decides it. An address is a node's if no other node lists it and it is none of pods, of Services, of the server's machine, loopback or link-local. An address that
// two nodes list is neither's: which of them is right cannot be known here.
func (o *HubOptions) decideOwners(nodes []*corev1.Node, serverIPs []netip.Addr) (decided *owners, refused []string) {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b *corev1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	decided = &owners{addresses: map[netip.Addr]string{}}
	listed := map[netip.Addr][]string{}
	for _, node := range nodes {
		addresses := addressesOf(node)
		for _, ip := range addresses {
			if !slices.Contains(listed[ip], node.Name) {
				listed[ip] = append(listed[ip], node.Name)
			}
		}
		for _, text := range node.Spec.PodCIDRs[:min(len(node.Spec.PodCIDRs), maxListed)] {
			r, err := netip.ParsePrefix(text)
			if err != nil || r.Addr().Is4In6() || r != r.Masked() {
				refused = append(refused, fmt.Sprintf("%q of node %s is not a range of addresses", text, node.Name))
				continue
			}
			if why := o.rangeRefused(r, addresses, decided.ranges); why != "" {
				refused = append(refused, fmt.Sprintf("the range %s of node %s %s", r, node.Name, why))
				continue
			}
			decided.ranges = append(decided.ranges, ownedRange{r, node.Name})
		}
	}
	for ip, names := range listed {
		if why := o.addressRefused(ip, names, serverIPs, decided.ranges); why != "" {
			refused = append(refused, fmt.Sprintf("the address %s of node %s %s", ip, names[0], why))
			continue
		}
		decided.addresses[ip] = names[0]
	}
	slices.Sort(refused)
	return decided, refused
}

// addressesOf returns the IP addresses of a node's status.
func addressesOf(node *corev1.Node) (out []netip.Addr) {
	for _, a := range node.Status.Addresses[:min(len(node.Status.Addresses), maxListed)] {
		if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Zone() == "" {
			out = append(out, ip.Unmap())
		}
	}
	return out
}

// rangeRefused returns why a range is not a node's; empty if it is.
func (o *HubOptions) rangeRefused(r netip.Prefix, addresses []netip.Addr, taken []ownedRange) string {
	if !slices.ContainsFunc(o.PodCIDRs, func(c netip.Prefix) bool { return c.Bits() <= r.Bits() && c.Contains(r.Addr()) }) {
		return "is not within those of the cluster"
	}
	if slices.ContainsFunc(addresses, r.Contains) {
		return "has addresses of the node in it"
	}
	if i := slices.IndexFunc(taken, func(t ownedRange) bool { return t.Overlaps(r) }); i >= 0 {
		return "overlaps one of node " + taken[i].node + ", which came first"
	}
	return ""
}

// addressRefused returns why an address is not the node's that lists it; empty if it is.
func (o *HubOptions) addressRefused(ip netip.Addr, names []string, serverIPs []netip.Addr, ranges []ownedRange) string {
	in := func(p netip.Prefix) bool { return p.Contains(ip) }
	switch {
	case ip.IsLoopback(), ip.IsUnspecified(), ip.IsLinkLocalUnicast(), ip.IsMulticast():
		return "is no machine's own"
	case slices.Contains(serverIPs, ip):
		return "is the server's"
	case slices.ContainsFunc(o.ServiceCIDRs, in):
		return "is one of services"
	case slices.ContainsFunc(o.PodCIDRs, in), slices.ContainsFunc(ranges, func(r ownedRange) bool { return r.Contains(ip) }):
		return "is one of pods"
	case len(names) > 1:
		return fmt.Sprintf("is listed by node %s too: delete the one that is not there any more (kubectl delete node)", names[1])
	}
	return ""
}
