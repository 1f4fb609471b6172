// Package clusterdns keeps the Service that pods find the cluster's name servers by, kube-system/kube-dns, and its EndpointSlices: the name server of
// every ready node, each for the pods of its own node (package network/dns).
//
// Others may provide DNS instead: a kube-dns Service with a selector, such as CoreDNS's, is not touched, nor is one that this loop did not create. When
// the cluster's own name servers are disabled, what this loop created is deleted; without a configured address, it does nothing.
//
// It must not import the API server, its store or its cache, or another component such as the network: components meet only at the API.
package clusterdns
