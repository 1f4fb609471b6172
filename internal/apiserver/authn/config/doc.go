// Package config puts a server's authentication together from its flags. The order of the chain is upstream's and stands in New; a new
// authenticator is a folder beside this one and a line there.
//
// It must not import the API server's root package, its store or its cache: authenticators read and write objects through objects.Store.
package config
