// Package machine reads what the machine under a node has: its capacity, what of that pods may use, its operating system, and how much memory, disk and
// process IDs are left.
//
// The node's status (package nodestatus) reports the first three, the eviction manager (package housekeeping) acts on the last.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package machine
