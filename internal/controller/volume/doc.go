// Package volume holds what the loops about volumes share: which pods use a claim, and which pods have ended.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package volume
