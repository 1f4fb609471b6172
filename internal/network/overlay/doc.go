// Package overlay connects the pods of all nodes: it programs this node's kernel from Node objects, so that every pod reaches every other by
// its own address, whichever nodes they are on.
//
// Each node has a range of pod addresses (spec.podCIDRs) and publishes in annotations of its Node how it is reached. From that follows, for
// every other node, one route for each of its ranges and what the backend needs beside it:
//
//	vxlan    packets are wrapped by the kernel (interface skiff.vx, network 1, UDP port 8472): a neighbour entry names the other side's
//	         hardware address, a forwarding entry says at which node that is; nothing is learned from packets
//	host-gw  no wrapping: routes by way of the other nodes' own addresses, which must be on the same segment
//	auto     as host-gw where the other node is on the same segment, as vxlan elsewhere
//	udp      packets are wrapped by skiff itself (interface skiff.tun, UDP port 8285), for where the kernel can do neither
//
// What must be there is worked out by a pure function of the Nodes and of this node's link (decide); the rest brings the kernel there, step by
// step, and looks again now and then whether it still is. Wrapped packets are taken from the addresses of nodes alone (nftables table skiff-overlay). Only what is ours is touched: our interfaces with all that is on them, and routes
// that carry our protocol number. All of it stays when skiff ends, so that traffic survives its restart.
//
// Masquerading of what leaves the cluster is podnet's. docs/network.md follows a packet through all of it.
package overlay
