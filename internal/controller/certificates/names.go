package certificates

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// reserved holds the names and addresses that no node may have a certificate for.
type reserved struct {
	domain string         // DNS domain of the cluster
	hosts  []string       // names and addresses of the API server
	ranges []netip.Prefix // CIDRs of pods and Services
}

func newReserved(domain string, hosts []string, ranges ...[]string) reserved {
	r := reserved{domain: domain, hosts: hosts}
	for _, cidr := range slices.Concat(ranges...) {
		if p, err := netip.ParsePrefix(cidr); err == nil {
			r.ranges = append(r.ranges, p.Masked())
		}
	}
	return r
}

// nodeName returns why a machine cannot have a name, or "".
func (r reserved) nodeName(name string) string {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Sprintf("%q cannot be the name of a node: %s", name, strings.Join(problems, "; "))
	}
	if _, err := netip.ParseAddr(name); err != nil && !r.isClusterName(name) {
		return ""
	}
	return fmt.Sprintf("%q cannot be the name of a node: it means something else in the cluster", name)
}

// isClusterName reports whether a name is one that Services or the machine itself are reached by.
func (r reserved) isClusterName(name string) bool {
	under := func(domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }
	return under("localhost") || under("svc") || name == "kubernetes" || name == "kubernetes.default" || r.domain != "" && under(r.domain)
}

// address returns why a node cannot serve at an address, or "".
func (r reserved) address(text string) string {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return "is not an address"
	}
	ip = ip.Unmap()
	switch {
	case ip.IsLoopback(), ip.IsUnspecified(), ip.IsLinkLocalUnicast(), ip.IsMulticast():
		return "is no machine's own address"
	case slices.Contains(r.hosts, ip.String()):
		return "is an address of the API"
	case slices.ContainsFunc(r.ranges, func(p netip.Prefix) bool { return p.Contains(ip) }):
		return "is an address of pods or services"
	}
	return ""
}
