// Package ownerreferencespermissionenforcement is the admission plugin OwnerReferencesPermissionEnforcement: only who may delete an object may change its owner
// references, and only who may update the finalizers of an owner may have its deletion wait for the object (blockOwnerDeletion).
//
// It must not import the API server's root package, its store, its cache or another plugin.
package ownerreferencespermissionenforcement
