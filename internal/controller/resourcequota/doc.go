// Package resourcequota keeps the status of ResourceQuotas: what the objects of a namespace use of what its quotas limit. Admission charges
// quotas when objects are written, starting from what this loop has counted; when objects are deleted or use less, this loop counts again. Both
// measure with package quota.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package resourcequota
