// Package overlay is the pod network between nodes: it programs this node's kernel from Node objects, so that every pod reaches every other
// by its own address, whichever nodes they are on.
//
// Each node has ranges of pod addresses (spec.podCIDRs) and publishes in annotations of its Node how it is reached. For every other node
// there is one route for each of its ranges, and what the backend needs beside it:
//
//	vxlan    the kernel encapsulates packets (interface skiff.vx, VNI 1, UDP port 8472): a neighbour entry names the other side's hardware
//	         address, a forwarding database entry says at which node that is; nothing is learned from packets
//	host-gw  no encapsulation: routes with the other nodes' addresses as gateways, which must be on the same network segment
//	auto     host-gw for nodes on the same segment, vxlan for the others
//	udp      skiff itself encapsulates packets (interface skiff.tun, UDP port 8285), where the kernel supports neither
//
// A pure function of the Nodes and of this node's links (decide) returns the wanted state. The rest reconciles the kernel with it, and
// resyncs periodically. Encapsulated packets are accepted only from the addresses of nodes (nftables table skiff-overlay). Only skiff's own
// state is changed: its interfaces with all that is on them, and routes with its protocol number. All of it stays when skiff ends, so that
// traffic survives a restart.
//
// Masquerading of traffic that leaves the cluster is podnet's. docs/network.md follows a packet through all of it.
//
// It must not import the API server, its store or its cache, nor another component: components meet only at the API, through client.
package overlay
