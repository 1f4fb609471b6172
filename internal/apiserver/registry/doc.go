// Package registry reads and writes the objects of one stored resource. Reads come from the cache; writes go to the store, after the kind's own
// preparation and validation, which its declaration in the catalog has. A verb has decoded and admitted an object before it hands it over. An update
// reads from top to bottom in Update and replace: the current version, the change, its checks, the hooks, validation, the store.
//
// It must not import verbs, response or anything else of the API server that knows of HTTP requests.
package registry
