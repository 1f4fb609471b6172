// Package node declares the resources of the group node.k8s.io: runtime classes, which select how a node runs a pod's
// containers.
//
// The API server applies these declarations to every request for the group: it defaults, prepares and validates objects with
// them before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package node
