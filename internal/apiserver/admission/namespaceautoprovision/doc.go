// Package namespaceautoprovision is the admission plugin NamespaceAutoProvision: an object that is created in a namespace that does not exist has the namespace
// created first.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package namespaceautoprovision
