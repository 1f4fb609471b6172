// Package storagemigration declares storage version migrations: the wish that all objects of a resource are stored anew, in the
// version that is current. The loop in controller/storageversionmigrator does that.
//
// The API server applies the declaration to every request for the group: it defaults, prepares and validates objects with
// it before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package storagemigration
