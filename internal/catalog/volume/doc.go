// Package volume knows the sources a volume can come from, as pods name them in spec.volumes and persistent volumes in
// their spec, and declares the two resources that carry them through a cluster: PersistentVolume and
// PersistentVolumeClaim.
//
// Default, Validate, DefaultClaimSpec and ValidateClaimSpec are what other resources that hold volumes or claim
// templates call: pods, everything with a pod template, stateful sets.
package volume
