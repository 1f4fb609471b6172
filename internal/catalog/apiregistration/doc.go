// Package apiregistration declares API services: which server serves a version of an API group, this one or a service in the
// cluster. It does not reach those servers.
//
// The API server applies the declaration to every request for the group: it defaults, prepares and validates objects with
// it before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package apiregistration
