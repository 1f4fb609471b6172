// Package catalog declares every API resource once: its names and verbs, its defaults, its
// validation, which parts a client may change, which fields a selector may name, the columns that
// `kubectl get` shows. Routing, discovery, OpenAPI, storage keys, tables and caches are all derived from these declarations;
// nothing else in the tree names a resource to have it served.
//
// This package has the types: a group's package declares a Resource, and the server reads it as Info. Each
// API group has a package below (core, apps, batch, …); catalog/all lists them. On the way of a request the catalog stands between
// decoding and storing: the API server calls BeforeCreate and BeforeUpdate.
//
// The catalog is pure: it knows nothing of HTTP, storage or the network, and its functions have no side effects
// beyond the object they are given. It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package catalog
