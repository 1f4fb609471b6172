// Package policy has what the admission plugins of policies in CEL share: the index of policies and bindings by resource, and the lookup of parameters. The
// plugins are in validating and mutating.
//
// Policies and bindings are indexed when they change. An index is immutable and behind an atomic pointer, which is nil while there is no policy with a
// binding: then the plugins handle nothing. The expressions of a policy are compiled when a write first matches it.
//
// It must not import the API server's root package, its store or its cache.
package policy
