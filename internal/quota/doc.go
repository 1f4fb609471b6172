// Package quota measures what objects use of what ResourceQuotas limit. Admission charges it to quotas when objects are written, and the
// quota controller recounts it; both use this package, so that they agree.
//
// The package is pure: the caller passes in what it needs to know of the cluster.
//
// It must not import anything of skiff but the catalog: neither the API server nor the controllers, which both use it.
package quota
