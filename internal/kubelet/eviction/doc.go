// Package eviction decides which pods have to go when a node runs out of memory, disk or processes, before the kernel decides it. These are pure
// functions; the kubelet measures, and ends pods.
package eviction
