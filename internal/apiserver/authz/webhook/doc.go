// Package webhook authorizes requests by calling another server: the authorizer Webhook of --authorization-mode and --authorization-config.
//
// Match conditions in CEL say for which requests it is called. It is sent a SubjectAccessReview of authorization.k8s.io/v1 or v1beta1; the status of its
// response allows, denies or has no opinion. Responses are cached by the spec of their review. A call that fails means no opinion or a denial, as configured.
//
// What is bounded: a call's time, tries and response (see reviewclient), the number of cached responses (cacheSize) and what each of them holds.
//
// What differs from upstream: the keys of the cache are hashes, so that its size does not depend on what users send; a response with a longer reason
// than maxCachedText is not cached; a response of another kind or version is an error.
//
// It must not import another mode of authorization, nor the API server's root package, its store or its cache.
package webhook
