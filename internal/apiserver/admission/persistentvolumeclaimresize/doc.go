// Package persistentvolumeclaimresize is the admission plugin PersistentVolumeClaimResize: a PersistentVolumeClaim may ask for more only when it is bound
// and its class allows expansion.
//
// It must not import the API server's root package, its store, its cache or another plugin: it reads through objects.Reader.
package persistentvolumeclaimresize
