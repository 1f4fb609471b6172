// Package model decides what a Service means on this node, without saying how it is programmed. A Tracker takes Services, EndpointSlices and
// this node's labels as they come, and computes Ports: each a port of a Service in one address family, with the endpoints that this node may
// send its traffic to. A Mode programs them: packages nft, iptables and userspace.
//
// A Port means what kube-proxy does with it. It is decided here once, so that modes differ only in how packets travel.
//
// It must not import the API server, its store or its cache, nor another component, nor a mode: modes import it.
package model
