// Package match decides which requests the rules of a webhook concern. It is the same for webhooks and policies.
//
// It must not import a plugin, the API server's root package, its store or its cache.
package match
