// Package lister keeps, for admission plugins, the objects they consult on every write in the form they want them in. It is kept up to date
// by events, so that a write that a plugin has nothing to say about costs it one lookup in a map.
//
// It must not import the API server's root package, its store, its cache or a plugin: it reads through objects.Reader.
package lister
