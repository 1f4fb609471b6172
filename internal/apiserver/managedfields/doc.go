// Package managedfields keeps metadata.managedFields: who last set which field of an object. It is what server-side apply
// merges by, and every write updates it.
//
// The rules are those of k8s.io/apimachinery's managedfields and structured-merge-diff, driven by a schema that is generated at build
// time (mergeschema). Creating an object, by far the most frequent write that touches many fields, takes a short cut with the same result.
package managedfields
