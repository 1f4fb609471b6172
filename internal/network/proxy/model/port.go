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

// FamilyOf returns the family of an address. An IPv4-mapped IPv6 address is IPv4.
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

// ProtocolOf returns the protocol with a name. An empty name is TCP.
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

// String returns the name in lower case, as rules have it.
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
	Port               string // the port's name; may be empty if the Service has only one
	Protocol           Protocol
	Family             Family
}

// String returns the key as text: "default/web:http/tcp", with a "6" appended for IPv6.
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

// Port is a port of a Service as this node must serve it. It is immutable. All its addresses are of the key's family.
//
// There are two kinds of traffic: internal traffic goes to the cluster IP; external traffic goes to the node port, to external IPs and to load
// balancer IPs. Internal and External return the verdict about each.
type Port struct {
	Key Key

	ClusterIP       netip.Addr
	Port            uint16       // at ClusterIP, ExternalIPs and LoadBalancerIPs
	NodePort        uint16       // at the node's addresses; 0 is none
	ExternalIPs     []netip.Addr // sorted
	LoadBalancerIPs []netip.Addr // sorted; without those of IP mode Proxy

	// SourceRanges, if not empty, restricts who may reach LoadBalancerIPs: packets from other sources are dropped, whether or not there are
	// endpoints. It is sorted and without overlaps. If it contains a node's own address, the load balancer IPs are added, because the node uses
	// them as source when it connects to itself.
	SourceRanges []netip.Prefix

	// Affinity, if not zero, is the session affinity timeout: how long after its last connection a client still gets the same endpoint.
	Affinity time.Duration

	InternalLocal, ExternalLocal bool // the traffic policies are Local

	// Cluster lists the endpoints for traffic policy Cluster, Local those on this node for policy Local: the ready ones or, if there are none,
	// those that are terminating and still serve. Both are sorted, and empty if the Port never uses them.
	Cluster, Local []Endpoint

	// HasAnyEndpoint says that there are usable endpoints on some node: if not, traffic is rejected.
	HasAnyEndpoint bool

	// Serving lists, for UDP, all endpoints that serve, whatever the policies are: established flows to them may go on. It is sorted.
	Serving []netip.AddrPort
}

// Endpoint is an address and port that packets are sent to.
type Endpoint struct {
	netip.AddrPort
	Local bool // on this node
}

// Verdict is what happens to new connections.
type Verdict uint8

// The verdicts. Reject answers the client at once, because the Service has no endpoints; Drop is for traffic with policy Local that reached a
// node without endpoints, such as from a load balancer that has not noticed yet.
const (
	Forward Verdict = iota
	Reject
	Drop
)

// Internal returns the verdict about traffic to the cluster IP, and the endpoints if it is Forward.
func (p *Port) Internal() (Verdict, []Endpoint) { return p.verdict(p.InternalLocal) }

// External returns the verdict about traffic to the node port, external IPs and load balancer IPs. If ExternalLocal is set it is about clients
// outside the cluster: see ExternalFromCluster.
func (p *Port) External() (Verdict, []Endpoint) { return p.verdict(p.ExternalLocal) }

// ExternalFromCluster returns the verdict about traffic to external addresses from pods and from this node itself, for which the external
// traffic policy does not apply.
func (p *Port) ExternalFromCluster() (Verdict, []Endpoint) { return p.verdict(false) }

func (p *Port) verdict(local bool) (Verdict, []Endpoint) {
	endpoints := p.Cluster
	if local {
		endpoints = p.Local
	}
	switch {
	case !p.HasAnyEndpoint:
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

// ExternalAddresses returns the external IPs, followed by the load balancer IPs that are not among them.
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

// usesCluster reports whether any traffic uses the endpoints of Cluster, including external traffic from inside the cluster.
func (p *Port) usesCluster() bool { return !p.InternalLocal || p.IsExternal() }

func (p *Port) usesLocal() bool { return p.InternalLocal || (p.ExternalLocal && p.IsExternal()) }

// Equal reports whether two Ports are equal.
func (p *Port) Equal(o *Port) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.Key == o.Key && p.ClusterIP == o.ClusterIP && p.Port == o.Port && p.NodePort == o.NodePort && p.Affinity == o.Affinity &&
		p.InternalLocal == o.InternalLocal && p.ExternalLocal == o.ExternalLocal && p.HasAnyEndpoint == o.HasAnyEndpoint &&
		slices.Equal(p.ExternalIPs, o.ExternalIPs) && slices.Equal(p.LoadBalancerIPs, o.LoadBalancerIPs) && slices.Equal(p.SourceRanges, o.SourceRanges) &&
		slices.Equal(p.Cluster, o.Cluster) && slices.Equal(p.Local, o.Local) && slices.Equal(p.Serving, o.Serving)
}
