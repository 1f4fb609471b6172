// Package apps declares the workloads of the apps group: deployments, replica sets, stateful sets, daemon sets and the
// controller revisions that record earlier templates of the latter two.
//
// The API server applies these declarations to every request for the group: it defaults, prepares and validates objects with
// them before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package apps
