// Package cri is how the kubelet speaks to the container runtime: a thin client of the Container Runtime Interface over a unix socket, with a
// time limit on every call, and what the kubelet sees of a pod through it (Pod, Observer).
//
// Everything the kubelet will need to know of a container after a restart of its own is written into the container's labels and annotations,
// under the names that Kubernetes uses (labels.go); the runtime keeps them.
package cri
