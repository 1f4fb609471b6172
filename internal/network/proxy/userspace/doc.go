// Package userspace serves Services the way the first kube-proxy did: rules of iptables redirect what goes to a Service to a listener in this
// process, which goes round its endpoints one after the other.
//
// Each Port has a listener at the node's address, or two if it has a traffic policy: one for all endpoints and one for those on this node. The rules
// are those of package iptables, in chains that begin with SKIFF, for a Port whose endpoints are our listeners. So what is refused or dropped, who may
// reach a load balancer's address and which clients a policy concerns is decided in the kernel, and a listener never has to know whom it is for. Rules
// change only when a Port gets its first endpoint or loses its last one. Nobody reaches a listener but by way of its Service.
//
// What this mode cannot do, by its nature: endpoints see the node's address, never the client's; connections end with the process; and
// there is no SCTP: ports of that protocol are refused as if they had no endpoints.
//
// A connection that cannot be made to an endpoint is tried with the next one, with more patience every time. Half-closed connections stay half open.
// Connections, senders of UDP and clients that are remembered for session affinity are limited in number: see Limits.
package userspace
