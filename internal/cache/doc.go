// Package cache is the watch cache: it serves every read and watch of the API, between the API server's handlers and the store. It holds
// one Cache per resource, all fed by one watch of the store (see Feed), so they agree on one revision.
//
// It is bytes first: per object it keeps the encoded protobuf message with the resourceVersion spliced in, and the few
// values selectors ask for. Lists are concatenations of these bytes; a change is encoded once for all its watchers. Decoded objects
// and JSON are derived on demand and kept only while they are used.
//
// A kind may be uncached, as Events are: the cache then keeps only its latest changes, and objects are read from the store (uncached.go).
//
// The cache knows bytes, metadata and the functions of a Kind; it does not know HTTP or which resources exist. Only the API
// server may import it. It must not import any other package of skiff but the store.
package cache
