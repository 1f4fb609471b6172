// Package nodedeclaredfeaturevalidator is the admission plugin NodeDeclaredFeatureValidator: a running pod may not be changed in a way that needs a feature of the
// kubelet which its node does not declare, such as the resizing of pod-level resources.
//
// What differs from upstream: ResourceSlices are not checked, because upstream does that only while the feature gate DRANodeAllocatableResources is on, which skiff does not have.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package nodedeclaredfeaturevalidator
