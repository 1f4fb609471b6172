// Package storageversionmigrator has all objects of a resource stored anew, in the version and encoding of today, for each StorageVersionMigration that
// asks for it. It writes each object with a patch that changes nothing; the API server writes what is stored otherwise than it would be today.
//
// Migrations of one resource follow each other, oldest first, and each goes through upstream's steps, which show in its status: Running, the
// resourceVersion up to which objects are migrated, and Succeeded or Failed. The definition of a custom resource has the condition StorageMigrating
// meanwhile. After a success its status.storedVersions is the storage version alone, unless its spec changed during the migration.
//
// What differs from upstream: one loop keyed by resource does what three controllers do. The objects come from a list, a page at a time, and not from the
// garbage collector's cache, so resources that the garbage collector ignores are migrated too, and a migration keeps nothing in memory.
// After a failure, status.storedVersions stays: upstream overwrites it then too. Nothing is migrated before the API server stores objects in the version that
// the definition says.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package storageversionmigrator
