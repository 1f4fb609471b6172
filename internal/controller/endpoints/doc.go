// Package endpoints keeps the Endpoints of Services that select pods: the older form of EndpointSlices, one object per Service, of at most a thousand
// addresses. Clients from before EndpointSlices read them.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package endpoints
