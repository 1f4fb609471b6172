package model

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// candidate is an endpoint of a Port with the conditions and hints that decide whether it is used.
type candidate struct {
	Endpoint
	ready, serving, terminating bool
	hints                       *discoveryv1.EndpointHints
}

// endpoints returns the endpoints of a port in all slices of the Service, sorted by address, each once.
func (s *service) endpoints(key Key, node string) []candidate {
	var out []candidate
	for _, slice := range s.sorted() {
		if (slice.AddressType == discoveryv1.AddressTypeIPv4) != (key.Family == IPv4) || slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for _, port := range slice.Ports {
			if port.Name == nil || *port.Name != key.Port || port.Port == nil || *port.Port <= 0 || *port.Port > 65535 {
				continue
			}
			var name corev1.Protocol
			if port.Protocol != nil {
				name = *port.Protocol
			}
			if protocol, err := ProtocolOf(name); err != nil || protocol != key.Protocol {
				continue
			}
			out = slices.Grow(out, len(slice.Endpoints))
			for i := range slice.Endpoints {
				if c, ok := newCandidate(&slice.Endpoints[i], uint16(*port.Port), node); ok && FamilyOf(c.Addr()) == key.Family {
					out = append(out, c)
				}
			}
		}
	}
	// Of two pods with the same address, the one that is not terminating counts.
	slices.SortStableFunc(out, func(a, b candidate) int {
		if c := a.AddrPort.Compare(b.AddrPort); c != 0 || a.terminating == b.terminating {
			return c
		}
		if a.terminating {
			return 1
		}
		return -1
	})
	return slices.CompactFunc(out, func(a, b candidate) bool { return a.AddrPort == b.AddrPort })
}

func newCandidate(e *discoveryv1.Endpoint, port uint16, node string) (candidate, bool) {
	if len(e.Addresses) == 0 {
		return candidate{}, false
	}
	address, err := netip.ParseAddr(e.Addresses[0])
	if err != nil {
		return candidate{}, false
	}
	return candidate{
		Endpoint:    Endpoint{AddrPort: netip.AddrPortFrom(address.Unmap().WithZone(""), port), Local: isLocal(e, node)},
		ready:       isReady(e),
		serving:     e.Conditions.Serving == nil || *e.Conditions.Serving,
		terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
		hints:       e.Hints,
	}, true
}

func (c *candidate) lastResort() bool { return c.serving && c.terminating }

// choose sets the endpoints that a Port uses.
func (t *Tracker) choose(p *Port, all []candidate) {
	if p.Key.Protocol == UDP {
		for i := range all {
			if all[i].serving {
				p.Serving = append(p.Serving, all[i].AddrPort)
			}
		}
	}
	if p.usesCluster() {
		p.Cluster = pick(all, t.nearby(all))
		p.HasAnyEndpoint = len(p.Cluster) > 0
	}
	if p.usesLocal() {
		p.Local = pick(all, func(c *candidate) bool { return c.Local })
		p.HasAnyEndpoint = p.HasAnyEndpoint || slices.ContainsFunc(all, func(c candidate) bool { return c.ready || c.lastResort() })
	}
}

// pick returns the ready ones of the wanted endpoints or, if there are none, the terminating ones that still serve.
func pick(all []candidate, wanted func(*candidate) bool) []Endpoint {
	var out []Endpoint
	for i := range all {
		if all[i].ready && wanted(&all[i]) {
			if out == nil {
				out = make([]Endpoint, 0, len(all)-i)
			}
			out = append(out, all[i].Endpoint)
		}
	}
	if len(out) > 0 {
		return out
	}
	for i := range all {
		if all[i].lastResort() && wanted(&all[i]) {
			out = append(out, all[i].Endpoint)
		}
	}
	return out
}

// nearby returns a filter for the endpoints that topology hints assign to this node. Hints count only if every ready endpoint has them and one is
// for this node: hints for nodes before those for zones. Terminating endpoints pass, as they are used only when no ready one is left.
func (t *Tracker) nearby(all []candidate) func(*candidate) bool {
	everywhere := func(*candidate) bool { return true }
	forNode := func(c *candidate) bool {
		return !c.ready || c.hints != nil && slices.ContainsFunc(c.hints.ForNodes, func(n discoveryv1.ForNode) bool { return n.Name == t.node })
	}
	forZone := func(c *candidate) bool {
		return !c.ready || c.hints != nil && slices.ContainsFunc(c.hints.ForZones, func(z discoveryv1.ForZone) bool { return z.Name == t.zone })
	}
	nodeHints, zoneHints, nodeHit, zoneHit := true, true, false, false
	for i := range all {
		c := &all[i]
		if !c.ready {
			continue
		}
		nodeHints = nodeHints && c.hints != nil && len(c.hints.ForNodes) > 0
		zoneHints = zoneHints && c.hints != nil && len(c.hints.ForZones) > 0
		if !nodeHints && !zoneHints {
			return everywhere
		}
		nodeHit, zoneHit = nodeHit || forNode(c), zoneHit || forZone(c)
	}
	switch {
	case nodeHints && nodeHit:
		return forNode
	case zoneHints && zoneHit:
		return forZone
	}
	return everywhere
}
