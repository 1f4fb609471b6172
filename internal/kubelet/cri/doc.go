// Package cri is how the kubelet talks to the container runtime: a thin client of the Container Runtime Interface over a unix socket, with a timeout on every
// call, and what the kubelet observes of a pod through it (Pod, Observer).
//
// Everything that a restarted kubelet needs to know about a container is in the container's labels and annotations, under the names that Kubernetes uses
// (labels.go); the runtime keeps them.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package cri
