// Package front is the HTTP front of the API server: the filters that every request passes before anything is done for it. In order: tracing and
// metrics, recovery from panics, response headers, the request's deadline, authentication, a seat of flow control, impersonation and authorization.
// Behind it stand verbs, for the paths of resources, and nonresource, for all others.
//
// It must not import subresources, guards or the API server itself.
package front
