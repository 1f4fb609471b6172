// Package admission runs the admission chain of a write: plugins that may change the object or refuse it. The mutating part of every plugin
// runs first, in order, then, when the object is as it will be stored, the validating part. The first refusal ends the request.
// When a mutator asks for it, because it has changed the object late, all mutators run a second time.
//
// Admission comes after authorization and decoding, and before the write to the store. Each plugin has a folder of its own; their order is
// one list, in admission/plugins.
//
// It must not import a plugin, the API server's root package, its store or its cache.
package admission
