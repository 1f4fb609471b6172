// Package health answers whether traffic should be sent to this node: to load balancers at the health check node ports of Services, and to
// anybody at the service proxy's own /healthz and /livez.
//
// It must not import the API server, its store or its cache, nor another component: components meet only at the API, through client.
package health
