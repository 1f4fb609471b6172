// Package requestheader authenticates the user that a front proxy names in headers. The front proxy is recognized by its client
// certificate.
//
// It must not import the API server's root package, its store or its cache.
package requestheader
