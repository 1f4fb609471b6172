// Package batch declares jobs, which run pods until enough of them have succeeded, and cron jobs, which create jobs on a
// schedule.
//
// The API server applies these declarations to every request for the group: it defaults, prepares and validates objects with
// them before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package batch
