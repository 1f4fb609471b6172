// Package typecheck checks the expressions of ValidatingAdmissionPolicies against the schemas of the kinds that they apply to, and writes what it finds to
// their status. Expressions are compiled without schemas when they are written, so that a policy may apply to any kind: a typing error is only a warning.
//
// Upstream does this in a controller. It is a loop of the API server here, which has the schemas; several servers find and write the same.
//
// It must not import the API server's root package, its store or its cache.
package typecheck
