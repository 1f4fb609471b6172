// Package proxy is the service proxy of a node, kube-proxy's part: it sends what clients send to a Service's addresses to one of the Service's
// endpoints. It stands near the end of the journey: an EndpointSlice was written, and now packets follow.
//
// Package model decides what a Service means on this node; a mode programs it: nftables in package nft, and the others in packages of their
// names. This package watches the API, syncs changes at once but not too often, answers health checks, and deletes stale conntrack entries of
// UDP (package conntrack).
//
// It changes no rules but its own. When it ends everything stays in place, so that traffic survives a restart; Clean removes it.
//
// It must not import the API server, its store or its cache, nor another component: components meet only at the API, through client.
package proxy
