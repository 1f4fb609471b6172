package model

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// ports returns the Ports of a Service, sorted by key. A headless Service and one of type ExternalName have none.
func (t *Tracker) ports(s *service) []*Port {
	spec := &s.object.Spec
	if spec.ClusterIP == "" || spec.ClusterIP == corev1.ClusterIPNone || spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	external := addresses(spec.ExternalIPs)
	var ingress []string
	for _, i := range s.object.Status.LoadBalancer.Ingress {
		if i.IPMode == nil || *i.IPMode == corev1.LoadBalancerIPModeVIP {
			ingress = append(ingress, i.IP)
		}
	}
	balancers, ranges := addresses(ingress), prefixes(spec.LoadBalancerSourceRanges)
	var affinity time.Duration
	if c := spec.SessionAffinityConfig; spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		affinity = time.Duration(corev1.DefaultClientIPServiceAffinitySeconds) * time.Second
		if c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil && *c.ClientIP.TimeoutSeconds > 0 {
			affinity = time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
		}
	}
	clusterIPs := spec.ClusterIPs
	if len(clusterIPs) == 0 {
		clusterIPs = []string{spec.ClusterIP}
	}

	var out []*Port
	for _, ip := range addresses(clusterIPs) {
		family := FamilyOf(ip)
		p := Port{
			ClusterIP: ip, ExternalIPs: ofFamily(external, family), LoadBalancerIPs: ofFamily(balancers, family), Affinity: affinity,
			InternalLocal: spec.InternalTrafficPolicy != nil && *spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
			ExternalLocal: externalLocal(s.object),
		}
		p.SourceRanges = t.sourceRanges(ranges, family, p.LoadBalancerIPs)
		for i := range spec.Ports {
			port := p
			protocol, err := ProtocolOf(spec.Ports[i].Protocol)
			if err != nil || spec.Ports[i].Port <= 0 || spec.Ports[i].Port > 65535 {
				continue // the API does not allow it
			}
			port.Key = Key{Namespace: s.object.Namespace, Service: s.object.Name, Port: spec.Ports[i].Name, Protocol: protocol, Family: family}
			port.Port, port.NodePort = uint16(spec.Ports[i].Port), uint16(spec.Ports[i].NodePort)
			t.choose(&port, s.endpoints(port.Key, t.node))
			out = append(out, &port)
		}
	}
	slices.SortFunc(out, func(a, b *Port) int { return a.Key.Compare(b.Key) })
	return slices.CompactFunc(out, func(a, b *Port) bool { return a.Key == b.Key })
}

func externalLocal(s *corev1.Service) bool {
	switch {
	case s.Spec.Type == corev1.ServiceTypeLoadBalancer, s.Spec.Type == corev1.ServiceTypeNodePort, len(s.Spec.ExternalIPs) > 0:
		return s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	}
	return false
}

// sourceRanges returns the ranges of a family without overlaps. A range of zero bits is no restriction.
func (t *Tracker) sourceRanges(all []netip.Prefix, family Family, balancers []netip.Addr) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range all {
		if FamilyOf(p.Addr()) != family {
			continue
		}
		if p.Bits() == 0 {
			return nil
		}
		out = append(out, p)
	}
	if slices.ContainsFunc(t.nodeIPs, func(a netip.Addr) bool { return contains(out, a) }) {
		for _, a := range balancers {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	slices.SortFunc(out, comparePrefix) // a range comes before those within it
	var merged []netip.Prefix
	for _, p := range out {
		if !contains(merged, p.Addr()) {
			merged = append(merged, p)
		}
	}
	return merged
}

// healthCheck returns the health check of a Service, and whether it has one.
func (t *Tracker) healthCheck(s *service) (HealthCheck, bool) {
	spec := &s.object.Spec
	if spec.Type != corev1.ServiceTypeLoadBalancer || !externalLocal(s.object) || spec.HealthCheckNodePort <= 0 || spec.HealthCheckNodePort > 65535 || len(s.ports) == 0 {
		return HealthCheck{}, false
	}
	check := HealthCheck{Port: uint16(spec.HealthCheckNodePort)}
	for _, p := range s.ports {
		if !slices.Contains(check.Family, p.Key.Family) {
			check.Family = append(check.Family, p.Key.Family)
		}
	}
	ready := map[netip.Addr]struct{}{} // an address counts once, whatever the number of its ports
	for _, slice := range s.slices {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if !isLocal(e, t.node) || !isReady(e) || len(e.Addresses) == 0 || len(slice.Ports) == 0 {
				continue
			}
			if a, err := netip.ParseAddr(e.Addresses[0]); err == nil {
				ready[a.Unmap()] = struct{}{}
			}
		}
	}
	for a := range ready {
		if FamilyOf(a) == IPv4 {
			check.IPv4++
		} else {
			check.IPv6++
		}
	}
	return check, true
}

func isLocal(e *discoveryv1.Endpoint, node string) bool {
	return e.NodeName != nil && node != "" && *e.NodeName == node
}

func isReady(e *discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

// addresses returns the valid addresses of a list, sorted, each once.
func addresses(list []string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		if a, err := netip.ParseAddr(strings.TrimSpace(s)); err == nil {
			out = append(out, a.Unmap().WithZone(""))
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

func prefixes(list []string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		if p, err := netip.ParsePrefix(strings.TrimSpace(s)); err == nil { // the API lets blanks pass
			out = append(out, p.Masked())
		}
	}
	return out
}

func ofFamily(list []netip.Addr, family Family) []netip.Addr {
	var out []netip.Addr
	for _, a := range list {
		if FamilyOf(a) == family {
			out = append(out, a)
		}
	}
	return out
}

func contains(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}
