// Package server is the kubelet's API, on port 10250 of every node: logs, exec, attach and port-forward, which the API server proxies to it, and what
// monitoring asks for: pods, statistics, metrics, health.
//
// Every request is authenticated, by a certificate of the cluster's CA or by a token that a TokenReview is made of, and authorized by a SubjectAccessReview
// (authn.go, authz.go).
//
// Streams into containers are served by the container runtime, at an address on this machine's loopback interface that works once. Clients never
// see that address: the server proxies the stream (stream.go). The runtime speaks SPDY and old WebSockets; new WebSockets are
// translated (translate.go, tunnel.go).
//
// It knows the kubelet only by the small interfaces in Options.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package server
