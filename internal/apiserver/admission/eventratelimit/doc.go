// Package eventratelimit is the admission plugin EventRateLimit: it limits how many events are written a second, by the whole server, each namespace, each user or each
// source and object. Which limits there are is in its configuration. Each limit has a token bucket for every key; a cache of bounded size has those used last.
//
// As upstream's, it counts only requests for events of the core group, not of events.k8s.io.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package eventratelimit
