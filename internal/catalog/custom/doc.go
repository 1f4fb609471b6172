// Package custom makes custom resources out of CustomResourceDefinitions: the type of their objects, and declarations (catalog.Info) like those of the
// built-in resources, which the server serves in the same way.
//
// A Resource follows one definition. Its declarations, objects and caches refer to it, so that a changed schema holds for all of them at once. What schemas
// do to objects is in package schema.
//
// It is pure, as the rest of the catalog: it must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package custom
