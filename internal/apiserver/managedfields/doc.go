// Package managedfields keeps metadata.managedFields: which manager last set which field of an object. Server-side apply merges by it, and
// every write updates it.
//
// The rules are those of k8s.io/apimachinery's managedfields and structured-merge-diff, driven by a schema that is generated at build time
// (mergeschema). The library serves applies. For creates and updates it is too slow, and they take a fast path with the same result, byte
// for byte: the two objects are compared as Go values (compare.go), by a walk prepared per type from the schema (part.go), and the changes
// are applied to the text of each manager's field set (fieldset.go). Whatever the fast path cannot decide is left to the library.
//
// It must not import the API server's root package, its store or its cache: it deals in objects and the catalog's declarations.
package managedfields
