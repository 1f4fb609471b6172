// Package initialresources is the admission plugin InitialResources, which Kubernetes had until v1.10: a container that says neither what CPU time or memory
// it requests nor what it is limited to gets the request that its image has needed so far, percentile 90. What was set is said in an annotation of the pod.
//
// The past of the same tag in the same namespace counts most; if there are too few numbers of it, more namespaces, tags and days do: see ways.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package initialresources
