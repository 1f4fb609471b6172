// Package scheduling declares the resources of the group scheduling.k8s.io: priority classes, with the two that every cluster
// has from its start.
//
// The API server applies these declarations to every request for the group: it defaults, prepares and validates objects with
// them before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package scheduling
