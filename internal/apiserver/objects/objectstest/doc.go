// Package objectstest is an in-memory objects.Store for tests of authenticators, authorizers and admission plugins.
//
// It must not import the API server's root package, its store or its cache.
package objectstest
