package podnet

import "net/netip"

// Mapping forwards a host port to a container port of a pod.
type Mapping struct {
	Protocol      string     // TCP, UDP or SCTP
	HostIP        netip.Addr // an address of the node; if invalid or unspecified, all but loopback addresses
	HostPort      uint16
	ContainerPort uint16
}

// Ports holds the host ports of one sandbox.
type Ports struct {
	PodIPs   []netip.Addr
	Mappings []Mapping
}
