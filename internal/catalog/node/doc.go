// Package node declares the resources of the group node.k8s.io: runtime classes, the ways in which nodes can run a pod's
// containers.
package node
