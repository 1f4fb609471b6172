// Package client calls webhooks over HTTPS. Every webhook server has a pool of HTTP/1.1 connections of its own, so that one that hangs holds nobody else
// up, and requests are spread over the pods of a service by resolving it for each request.
//
// Everything is bounded: connections, the size of answers, and by the caller's context the time. Redirects are not followed.
//
// It must not import a plugin, the API server's root package, its store or its cache.
package client
