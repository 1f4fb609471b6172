// Package protection keeps storage objects that are in use from being deleted. Admission adds a finalizer to each when it is created; after it was
// deleted, the finalizer is removed once the object is no longer used: a claim is used by pods on nodes, a volume by the claim it is bound to, a
// VolumeAttributesClass by claims and volumes.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package protection
