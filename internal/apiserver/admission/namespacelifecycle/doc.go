// Package namespacelifecycle is the admission plugin NamespaceLifecycle. It refuses objects in namespaces that do not exist or are
// terminating, and the deletion of the namespaces default, kube-system and kube-public.
//
// It must not import the API server's root package, its store, its cache or another plugin: New gets a function that finds namespaces.
package namespacelifecycle
