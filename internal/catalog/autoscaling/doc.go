// Package autoscaling declares horizontal pod autoscalers. They are stored as v2; v1 is a view of the same objects that has
// fields for one CPU target only, and carries the rest in annotations.
//
// The API server applies these declarations to every request for the group: it defaults, prepares and validates objects with
// them before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package autoscaling
