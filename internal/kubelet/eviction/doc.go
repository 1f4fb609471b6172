// Package eviction decides which pods are evicted when a node runs out of memory, disk or process IDs, before the kernel decides it. These are pure functions;
// package machine measures, and package housekeeping has pods evicted.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package eviction
