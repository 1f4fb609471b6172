// Package server is the kubelet's own API, on port 10250 of every node: logs, exec, attach and port forwarding, which the API server passes on to
// it, and what monitoring asks for: pods, statistics, metrics, health.
//
// Nobody is trusted: a client shows a certificate of the cluster's authority, or a token that the API is asked about, and the API is asked
// whether it may do to this node what it wants to (authn.go, authz.go).
//
// Streams into containers are served by the container runtime, at an address on this machine's loopback interface that works once. Clients never
// see that address: what they send is carried there and back (stream.go). The runtime speaks SPDY and old WebSockets; new WebSockets are
// translated (translate.go, tunnel.go).
//
// It knows the kubelet only by the small interfaces in Options.
package server
