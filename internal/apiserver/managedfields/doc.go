// Package managedfields keeps metadata.managedFields: who last set which field of an object. It is what server-side apply
// merges by, and every write updates it.
//
// The rules are those of k8s.io/apimachinery's managedfields and structured-merge-diff, driven by a schema that is generated at build
// time (mergeschema). The library serves applies. For creates and updates it is too slow, and they take a short cut with the same result, byte
// for byte: the two objects are compared as they are (compare.go), by a walk prepared per type from the schema (part.go), and the outcome is carried
// over into the text of each manager's field set (fieldset.go). Whatever the short cut is not sure of is left to the library.
package managedfields
