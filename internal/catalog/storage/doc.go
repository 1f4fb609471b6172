// Package storage declares the resources of the group storage.k8s.io: storage classes and volume attributes classes, CSI
// drivers with their nodes and storage capacities, and volume attachments.
//
// The API server applies these declarations to every request for the group: it defaults, prepares and validates objects with
// them before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package storage
