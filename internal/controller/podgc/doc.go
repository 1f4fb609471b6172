// Package podgc is the pod-garbage-collector-controller. It deletes pods that no kubelet or owner would: terminated ones when there are too
// many, those of nodes that no longer exist or are out of service, and terminating ones that were never bound to a node.
//
// It checks all pods from time to time, because most of its reasons are not changes of a pod.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package podgc
