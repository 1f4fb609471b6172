// Package celauthorizer lets the CEL expressions of webhooks and policies ask the API server's authorizer what a user may do: it adapts one to the other, and
// remembers the answers for one request.
//
// It must not import the API server's root package, its store or its cache.
package celauthorizer
