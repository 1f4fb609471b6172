// Package match decides which writes a policy or a binding applies to, by resource rules, equivalent resources and selectors.
//
// It must not import the API server's root package, its store or its cache.
package match
