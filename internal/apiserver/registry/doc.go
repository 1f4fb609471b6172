// Package registry is the verbs of the API over one stored resource: create, get, list, update, delete and watch, with Kubernetes' rules for names,
// versions, preconditions, grace periods, finalizers and pagination. A verb has decoded and admitted an object before it hands it over; the registry
// reads from the cache, and writes to the store after the preparation and validation that the declaration of the kind has.
//
// It must not import verbs, response, authn, authz or admission: it knows nothing of requests and users, and what must be asked of those is passed in as
// functions.
package registry
