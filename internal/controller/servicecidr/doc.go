// Package servicecidr makes ServiceCIDRs ready for Services to get addresses from, and keeps a deleted one until no Service would be left with an
// address that no ServiceCIDR contains.
//
// Each gets a finalizer. It is removed from a deleted one when every address that Services have of it is also in another ServiceCIDR, and not before
// the API servers' allocators have had time to observe the deletion.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package servicecidr
