// Package core declares the core group (v1): nodes, namespaces, services, secrets and the rest of what Kubernetes has had from
// its start. Pods and persistent volumes have their own packages (catalog/pod, catalog/volume), but are listed here with the
// others.
//
// The allocators of cluster IPs and node ports have state and are part of the server; what can be decided without state is
// here: see PrepareAllocation.
//
// The API server applies these declarations to every request for the group: it defaults, prepares and validates objects with
// them before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package core
