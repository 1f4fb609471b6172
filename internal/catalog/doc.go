// Package catalog declares every API resource once: its names and verbs, what is filled in when a client
// leaves it out, what is refused, which parts a client may change, which fields a selector may ask for, what
// `kubectl get` shows. Routing, discovery, OpenAPI, storage keys, tables and caches are all derived from these declarations;
// nothing else in the tree names a resource to have it served.
//
// This package is the vocabulary: Resource is what a group's package writes down, Info what the server reads. Each
// API group has a package below (core, apps, batch, …); catalog/all lists them.
//
// The catalog is pure: it knows nothing of HTTP, storage or the network, and its functions have no side effects
// beyond the object they are given.
package catalog
