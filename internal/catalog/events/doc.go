// Package events declares events.k8s.io, the newer form of events. They are the core group's events, stored once and
// shown under both names; this group is stricter about those written through it.
package events
