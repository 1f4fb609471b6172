// Package events declares events.k8s.io, the newer form of events. They are the core group's events, stored once and served
// under both groups; this group validates those written through it more strictly.
//
// The API server applies these declarations to every request for the group: it defaults, prepares and validates objects with
// them before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package events
