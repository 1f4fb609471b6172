// Package defaultstorageclass is the admission plugin DefaultStorageClass: a PersistentVolumeClaim that names no class gets the cluster's
// default class.
//
// It must not import the API server's root package, its store, its cache or another plugin: it reads through objects.Reader.
package defaultstorageclass
