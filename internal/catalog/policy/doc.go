// Package policy declares pod disruption budgets, which limit how many pods of an application may be disrupted at a time.
//
// The API server applies these declarations to every request for the group: it defaults, prepares and validates objects with
// them before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package policy
