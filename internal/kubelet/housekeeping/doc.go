// Package housekeeping keeps a node from filling up: it removes exited containers, dead sandboxes, unused images and the logs of deleted pods (garbage
// collection), finds what the node has of pods that the API does not know (orphans), and evicts pods before the node runs out of memory, disk or process IDs.
//
// The kubelet starts it once all pods of the API have their workers. What is to happen to a pod it leaves to the pod's worker (Pods); which pod is evicted is
// package eviction's decision; what the node has too little of is reported by package nodestatus.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package housekeeping
