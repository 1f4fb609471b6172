// Package endpointslice keeps the EndpointSlices of Services that select pods: the addresses behind a Service, ready or not, in slices of at most a
// hundred. k8s.io/endpointslice, the reconciler of Kubernetes itself, works out which slices there should be; this package reads the caches, lets it
// plan, and turns its plan into actions.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package endpointslice
