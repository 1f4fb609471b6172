// Package initializers has the type of metadata.initializers: the initializers that an object waits for before others may see it. Kubernetes had the
// field in ObjectMeta until v1.15, as field 16 of the message; the Go type of today has it no more. So it is kept beside the object: in an object's message
// it is a metadata of its own that has nothing else (see Suffix), which whoever decodes the message merges or skips.
//
// It must not import any package of skiff: the transcoder, the codec, admission and the catalog use it.
package initializers
