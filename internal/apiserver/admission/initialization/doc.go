// Package initialization is the admission plugin Initializers, which Kubernetes had until v1.13. It gives a new object the initializers that
// InitializerConfigurations name for its resource, as pending; the registry hides the object until none is. It lets only who may "initialize" the resource
// change an object that waits, or decide what one waits for, and it lets only the first of the pending initializers be removed.
//
// As upstream, mirror pods wait for nothing. What configures admission waits for nothing either: an initializer that never answers could not be removed.
//
// What differs from upstream: an initializer cares about a resource that any of its rules names, as its documentation said, where upstream wanted all of them
// to; and upstream let anybody who may initialize remove any of the pending initializers.
//
// It must not import the API server's root package, verbs or the registry.
package initialization
