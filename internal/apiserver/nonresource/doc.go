// Package nonresource serves the paths that are no resource's, which RBAC calls nonResourceURLs: discovery and OpenAPI, health checks, metrics, the
// version, /statusz and /flagz, profiles, the documents that verify tokens, and skiff's own paths for journeys and tunnels. Requests come from the
// front, past all filters.
//
// It must not import front, subresources, guards or the API server itself.
package nonresource
