// Package userspace is the userspace mode of the service proxy, as the first kube-proxy had it: iptables rules redirect traffic to a Service to a
// listener in this process, which balances it over the endpoints in turn.
//
// Each Port has a listener on the node's address, or two if it has traffic policy Local: one for all endpoints and one for those on this node. The
// rules are those of package iptables, in chains that begin with SKIFF, for a Port whose endpoints are the listeners. So the kernel decides what
// is rejected or dropped, who may reach a load balancer's address and to which clients a policy applies. Rules change only when a Port gets its
// first endpoint or loses its last one. A listener can be reached only through its Service.
//
// What differs from the other modes: endpoints see the node's address, never the client's; connections end with the process; and there is no SCTP:
// ports of that protocol are rejected as if they had no endpoints.
//
// If connecting to an endpoint fails the next one is tried, with a longer timeout every time. Half-closed connections stay half open. Connections,
// UDP senders and clients with session affinity are limited in number: see Limits.
//
// It must not import the API server, its store or its cache, nor another component: components meet only at the API, through client.
package userspace
