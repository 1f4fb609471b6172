// Package conversion converts custom objects between the versions of their definition by calling its conversion webhook.
//
// A converter asks the webhook about objects, in one ConversionReview as long as that does not become large, and makes sure that the answer changes
// nothing of their metadata but labels and annotations. Who calls it, and what is kept of its results, is for packages custom and registry.
//
// What differs from upstream: all objects of a list are sent in one review instead of one review each, redirects are not followed, answers are limited to
// 16 MB, and a call that fails because a kept connection was closed is repeated.
//
// It must not import the API server's root package, its registry, its store or its cache.
package conversion
