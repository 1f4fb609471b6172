// Package namespaceexists is the admission plugin NamespaceExists: a write in a namespace that does not exist is refused. NamespaceLifecycle, which is on by default,
// does that too.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package namespaceexists
