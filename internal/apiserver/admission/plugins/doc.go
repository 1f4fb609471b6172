// Package plugins puts the admission chain together: which plugins exist, in which order they run and which of them are enabled.
//
// It must not import the API server's root package, its store or its cache.
package plugins
