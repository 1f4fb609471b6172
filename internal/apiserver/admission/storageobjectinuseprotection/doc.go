// Package storageobjectinuseprotection is the admission plugin StorageObjectInUseProtection. It adds to new PersistentVolumes,
// PersistentVolumeClaims and VolumeAttributesClasses the finalizer that keeps them while they are in use. The protection controllers remove
// it.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package storageobjectinuseprotection
