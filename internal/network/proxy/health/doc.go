// Package health answers those who ask whether to send traffic to this node: load balancers at the health check node ports of Services, and
// anybody at the proxy's own /healthz.
package health
