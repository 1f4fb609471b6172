// Package podgroupprotection is the admission plugin PodGroupProtection: a new PodGroup gets the finalizer that keeps it while pods refer to it.
//
// Upstream does that only while the feature gate GenericWorkload is on, which it is not by default. skiff does not serve PodGroups, so that there is nothing to do.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package podgroupprotection
