// Package resource declares the resources of the group resource.k8s.io, with which pods get devices: device classes, claims and
// templates of claims, the slices in which drivers publish their devices, and rules that taint devices.
//
// The API server applies these declarations to every request for the group: it defaults, prepares and validates objects with
// them before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package resource
