// Package networking declares ingresses and their classes, network policies, and the service CIDRs with the IP addresses
// allocated from them.
//
// The API server applies these declarations to every request for the group: it defaults, prepares and validates objects with
// them before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package networking
