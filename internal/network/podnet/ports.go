package podnet

import "net/netip"

// Mapping is a port of the node that leads to a port of a pod.
type Mapping struct {
	Protocol      string     // TCP, UDP or SCTP
	HostIP        netip.Addr // an address of the node; any but loopback if it is not valid or unspecified
	HostPort      uint16
	ContainerPort uint16
}

// Ports are the host ports of one sandbox.
type Ports struct {
	PodIPs   []netip.Addr
	Mappings []Mapping
}
