// Package status computes the statuses of pods, and writes them to the API.
//
// Of computes a pod's status from what the runtime knows of its containers, what probes say, and what was reported before; it is a pure function. Finished and
// Rejected are its counterparts for pods that have terminated or never ran. Writer writes statuses to the API, only when they change, one request at a time for
// each pod, and deletes pods that are being deleted once nothing of them is left on the node.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package status
