// Package verbs serves resources: get, list, watch, create, update, patch, apply and delete, which are the same for all of them, and the scale
// subresource. API.Serve takes a request that has passed the filters to its verb, or to a Handler if no verb serves it. A verb decodes, admits and
// hands over to the registry, which reads from the cache and writes to the store; package response sends the answer. Everything about a resource comes
// from its declaration in the catalog.
//
// It must not import front, nonresource, subresources, guards or the API server itself.
package verbs
