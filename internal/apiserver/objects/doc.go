// Package objects is the interface through which authenticators, authorizers and admission plugins read and write the objects of the API
// server they run in. Reads come from the caches and cost no request; writes skip authorization and admission, but apply the resource's
// defaults and validation.
//
// It must not import the API server's root package, its store or its cache: the API server implements it.
package objects
