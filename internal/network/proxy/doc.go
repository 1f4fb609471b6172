// Package proxy has Services answer on a node: what a client sends to a Service's address, at this node or from a pod on it, goes to one of the
// Service's endpoints. It stands near the end of the journey: an EndpointSlice was written, and now packets follow.
//
// What a Service means is worked out in package model; how packets are brought to where they belong is a mode's business: nftables in
// package nft, and the others in packages of their names. This package watches the API, sees to it that changes go out at once but
// not too often, answers health checks, and has the kernel forget flows that lead nowhere (package conntrack).
//
// It touches no rules but its own. When it ends everything stays in place, so that traffic survives a restart; Clean removes it.
package proxy
