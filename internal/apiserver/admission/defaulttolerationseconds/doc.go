// Package defaulttolerationseconds is the admission plugin DefaultTolerationSeconds: a pod tolerates a node that is not ready or
// unreachable for a default time, unless the pod has such a toleration itself.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package defaulttolerationseconds
