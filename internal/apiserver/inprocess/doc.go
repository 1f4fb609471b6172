// Package inprocess is how components in the API server's own process reach it. Requests take the way over the front like any other; lists and watches
// of shared objects go past HTTP and encoding: after authorization they read the objects that the cache keeps decoded, which nobody may change.
//
// It must not import front, nonresource, subresources, guards or the API server itself.
package inprocess
