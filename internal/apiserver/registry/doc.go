// Package registry is the API's verbs over one resource: create, get, list, update, delete and watch, with Kubernetes' rules for
// names, versions, preconditions, grace periods, finalizers and pagination. Handlers decode requests and call it; it reads from the
// cache and writes to the store.
//
// It knows nothing of HTTP, users or admission: what must be asked of those is passed in as functions.
package registry
