// Package volume has the rules for the sources of volumes, as pods name them in spec.volumes and persistent volumes in their
// spec, and declares the two resources that carry them: PersistentVolume and PersistentVolumeClaim.
//
// Other resources that hold volumes or claim templates call Default, Validate, DefaultClaimSpec and ValidateClaimSpec: pods,
// everything with a pod template, stateful sets.
//
// The API server applies these declarations to every request for the two: it defaults, prepares and validates objects with them
// before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package volume
