// Package evaluate runs the compiled expressions of a policy on a write: it makes the CEL values of the write once for all policies, evaluates variables
// when they are first read, and charges every evaluation to a budget as upstream does.
//
// Objects are read by reflection where they are, not converted, unless an expression builds a mutation, which may contain parts of them.
//
// It must not import the API server's root package, its store or its cache.
package evaluate
