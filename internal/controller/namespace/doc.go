// Package namespace deletes the content of terminating namespaces, whatever kinds there are, reports in the namespace's conditions how far that
// got, and removes the namespace's finalizer when nothing is left.
//
// One reconcile is one sweep: pods first, then everything else. Upstream waits five seconds before its first, for other API servers to observe
// that the namespace accepts no more objects. Here a namespace is finalized only after a sweep that found nothing, begun a moment after the last
// one that found something: requests that were in flight have arrived by then, and a namespace with little content is gone within milliseconds.
//
// What aggregated API servers serve is taken from what they said last while they are down: a namespace ends without them if nothing of theirs can be
// deleted, where upstream waits. Only a server that has never said what it serves keeps every namespace.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package namespace
