// Package endpointslicemirroring mirrors Endpoints that are written by hand, for Services without a selector, to EndpointSlices: kube-proxy reads
// only those.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package endpointslicemirroring
