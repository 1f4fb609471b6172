// Package cache is what every read of the API is served from. It holds one Cache per resource, all fed by one watch of the
// store (see Feed), so they agree on one revision.
//
// It is bytes first: per object it keeps the encoded protobuf message with the resourceVersion spliced in, and the few
// values selectors ask for. Lists are concatenations of these bytes; a change is encoded once however many watch it. Decoded objects
// and JSON are derived when asked for and kept only while somebody uses them.
//
// A kind may be uncached, as Events are: the cache then keeps its latest changes alone, and objects are read from the store (uncached.go).
//
// The cache knows bytes, metadata and the functions of a Kind; it does not know HTTP or which resources exist. Only the API
// server may import it.
package cache
