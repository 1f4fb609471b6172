// Package validating is the admission plugin ValidatingAdmissionPolicy: it refuses, warns of or records writes that violate a policy in CEL which a binding
// puts in force.
//
// The outcome of a policy depends on the write and on the parameter only. So bindings with the same parameter, or with none, share one evaluation: a policy
// with a thousand bindings costs little more than one with a single one.
//
// It must not import the API server's root package, its store or its cache.
package validating
