// Package resourcequota is the admission plugin ResourceQuota. It refuses a write that would exceed a ResourceQuota of its namespace, and
// charges what a write uses to the quotas' status before the write happens. Nothing is given back if the write fails later: the quota
// controller recounts from time to time.
//
// A quota is charged with a compare-and-swap, so that it is never exceeded, whoever else writes. Writes that arrive while a charge is in
// flight wait and are then charged together, in one update.
//
// It must not import the API server's root package, its store, its cache or another plugin: it reads and writes through objects.Store, and
// internal/quota measures usage.
package resourcequota
