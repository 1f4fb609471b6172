// Package resource declares the resources of the group resource.k8s.io, with which pods get devices: classes of devices,
// claims for some and templates of claims, the slices in which drivers publish what they have, and rules that taint it.
package resource
