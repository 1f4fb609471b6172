// Package runtimeclass is the admission plugin RuntimeClass. It applies the RuntimeClass that a pod names: the overhead of running it, and
// the node selector and tolerations of the nodes that can.
//
// It must not import the API server's root package, its store, its cache or another plugin: it reads through objects.Reader.
package runtimeclass
