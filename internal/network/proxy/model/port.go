package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Family is an address family.
type Family uint8

// The address families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// FamilyOf is the family of an address. Addresses of IPv4 that are written as IPv6 are of IPv4.
func FamilyOf(a netip.Addr) Family {
	if a.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

// Protocol is a transport protocol by its number in IP headers.
type Protocol uint8

// The protocols that Services may have.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// ProtocolOf is the protocol of that name. An empty name is TCP.
func ProtocolOf(p corev1.Protocol) (Protocol, error) {
	switch p {
	case corev1.ProtocolTCP, "":
		return TCP, nil
	case corev1.ProtocolUDP:
		return UDP, nil
	case corev1.ProtocolSCTP:
		return SCTP, nil
	}
	return 0, fmt.Errorf("protocol %q is none of TCP, UDP and SCTP", p)
}

// String is the name in small letters, as rules have it.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprint(uint8(p))
}

// Key names a Port: a port of a Service in an address family.
type Key struct {
	Namespace, Service string
	Port               string // its name, empty if the Service has but one
	Protocol           Protocol
	Family             Family
}

// String is for people: "default/web:http/tcp", with "6" behind for IPv6.
func (k Key) String() string {
	s := k.Namespace + "/" + k.Service
	if k.Port != "" {
		s += ":" + k.Port
	}
	s += "/" + k.Protocol.String()
	if k.Family == IPv6 {
		s += "6"
	}
	return s
}

// Compare orders keys.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, other.Namespace), cmp.Compare(k.Service, other.Service), cmp.Compare(k.Port, other.Port),
		cmp.Compare(k.Protocol, other.Protocol), cmp.Compare(k.Family, other.Family))
}

// Port is a port of a Service as this node must serve it. It is never changed once it was made. All its addresses are of the key's family.
//
// There are two kinds of traffic. Internal is what goes to the cluster IP; external is what goes to the node port, to external IPs and to
// load balancer IPs. Internal and External say what becomes of each.
type Port struct {
	Key Key

	ClusterIP       netip.Addr
	Port            uint16       // at ClusterIP, ExternalIPs and LoadBalancerIPs
	NodePort        uint16       // at the node's addresses; 0 is none
	ExternalIPs     []netip.Addr // sorted
	LoadBalancerIPs []netip.Addr // sorted; those that are not a proxy's own

	// SourceRanges are who may reach LoadBalancerIPs, if any is given: packets of others are dropped, whether or not there are endpoints. Sorted,
	// none within another. Where a node's own address is in them, the load balancer IPs are added: they are the node's source to itself.
	SourceRanges []netip.Prefix

	// Affinity, if not zero, is how long after its last connection a client still comes to the same endpoint.
	Affinity time.Duration

	InternalLocal, ExternalLocal bool // traffic policies

	// Cluster are the endpoints for traffic without a policy, Local those on this node for traffic with one: ready ones, or those that are
	// terminating and still serve if there are no others. Sorted; empty if the Port never has use for them.
	Cluster, Local []Endpoint

	// Anywhere reports whether there are usable endpoints on any node: if not, traffic is rejected.
	Anywhere bool

	// Serving are all endpoints that serve, whatever policies say, for UDP: established flows to them may go on. Sorted.
	Serving []netip.AddrPort
}

// Endpoint is where packets are sent.
type Endpoint struct {
	netip.AddrPort
	Local bool // on this node
}

// Fate is what becomes of new connections.
type Fate uint8

// The fates. Rejected means that the sender is told at once (ICMP port unreachable, which a connecting TCP takes as refused); traffic that is
// dropped is the caller's wrong guess: a load balancer asks a node that has no endpoints of its own.
const (
	Forward Fate = iota
	Reject
	Drop
)

// Internal says what becomes of traffic to the cluster IP.
func (p *Port) Internal() (Fate, []Endpoint) { return p.fate(p.InternalLocal) }

// External says what becomes of traffic to external addresses: node port, external IPs, load balancer IPs. If ExternalLocal is set this is
// about clients elsewhere: see Near.
func (p *Port) External() (Fate, []Endpoint) { return p.fate(p.ExternalLocal) }

// Near says what becomes of traffic to external addresses from pods and from this node itself. Policies do not concern them.
func (p *Port) Near() (Fate, []Endpoint) { return p.fate(false) }

func (p *Port) fate(local bool) (Fate, []Endpoint) {
	endpoints := p.Cluster
	if local {
		endpoints = p.Local
	}
	switch {
	case !p.Anywhere:
		return Reject, nil
	case len(endpoints) == 0:
		return Drop, nil
	}
	return Forward, endpoints
}

// IsExternal reports whether there is any other way to reach the Port than by its cluster IP.
func (p *Port) IsExternal() bool {
	return p.NodePort != 0 || len(p.ExternalIPs) != 0 || len(p.LoadBalancerIPs) != 0
}

// External addresses in one list: external IPs, then load balancer IPs that are not among them.
func (p *Port) ExternalAddresses() []netip.Addr {
	if len(p.LoadBalancerIPs) == 0 {
		return p.ExternalIPs
	}
	all := slices.Clone(p.ExternalIPs)
	for _, a := range p.LoadBalancerIPs {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}

// usesCluster reports whether any traffic goes by Cluster: also what is short-circuited.
func (p *Port) usesCluster() bool { return !p.InternalLocal || p.IsExternal() }

func (p *Port) usesLocal() bool { return p.InternalLocal || (p.ExternalLocal && p.IsExternal()) }

// Equal reports whether two Ports mean the same.
func (p *Port) Equal(o *Port) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.Key == o.Key && p.ClusterIP == o.ClusterIP && p.Port == o.Port && p.NodePort == o.NodePort && p.Affinity == o.Affinity &&
		p.InternalLocal == o.InternalLocal && p.ExternalLocal == o.ExternalLocal && p.Anywhere == o.Anywhere &&
		slices.Equal(p.ExternalIPs, o.ExternalIPs) && slices.Equal(p.LoadBalancerIPs, o.LoadBalancerIPs) && slices.Equal(p.SourceRanges, o.SourceRanges) &&
		slices.Equal(p.Cluster, o.Cluster) && slices.Equal(p.Local, o.Local) && slices.Equal(p.Serving, o.Serving)
}
