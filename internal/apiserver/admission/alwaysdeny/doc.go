// Package alwaysdeny is the admission plugin AlwaysDeny: it refuses every write. Upstream has deprecated it; it is of use in tests.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package alwaysdeny
