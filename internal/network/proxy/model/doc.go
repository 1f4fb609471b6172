// Package model says what a Service means on this node, without saying how it is done. A Tracker takes Services, EndpointSlices and this
// node's labels as they come, and works out Ports: each a port of a Service in one address family, with the endpoints that this node
// may send its traffic to. A Mode brings them into effect: package nft with nftables, iptables and userspace with what their names say.
//
// What a Port means is what kube-proxy does with it. It is decided here once, so that modes differ only in how packets travel.
package model
