// Package initialresources is the admission plugin InitialResources, which Kubernetes had until v1.10: a container that says neither what CPU time or memory
// it requests nor what it is limited to gets a request and a limit from what its image has used so far. What was set is said in an annotation of the pod.
//
// The request is percentile 90 of what was used, the limit twice the most that was. The past of the same tag in the same namespace counts most; if there are too
// few numbers of it, more namespaces, tags and days do: see ways. Where nothing is known nothing is set. A configuration, or upstream's flags --ir-percentile
// and --ir-namespace-only, change the percentiles and how far back usage counts.
//
// What differs from upstream: it set requests only, as here with `limits: {percentile: 0}`, and always looked back a week, and then a month.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package initialresources
