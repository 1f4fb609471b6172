// Package discovery declares discovery.k8s.io: endpoint slices, which hold the addresses of the pods behind a service.
//
// The API server applies these declarations to every request for the group: it defaults, prepares and validates objects with
// them before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package discovery
