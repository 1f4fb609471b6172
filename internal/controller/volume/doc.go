// Package volume holds what the loops about volumes share: which pods use a claim, which pods have ended, and which CSI drivers took over from plugins that
// were part of Kubernetes.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package volume
