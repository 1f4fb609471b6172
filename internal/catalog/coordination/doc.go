// Package coordination declares coordination.k8s.io: leases, with which kubelets send heartbeats and controllers elect a
// leader.
//
// The API server applies these declarations to every request for the group: it defaults, prepares and validates objects with
// them before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package coordination
