// Package loadbalancer gives Services of type LoadBalancer addresses where no cloud does: those of the nodes, which accept traffic at the Service's
// ports (package network/proxy) and forward it to an endpoint. With externalTrafficPolicy Local only nodes with an endpoint count.
//
// A port of the nodes belongs to one Service, the oldest that wants it; others wait. The ports of kubelets and the API server are reserved. Services
// with a loadBalancerClass are left to others.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package loadbalancer
