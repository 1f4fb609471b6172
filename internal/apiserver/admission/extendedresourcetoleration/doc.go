// Package extendedresourcetoleration is the admission plugin ExtendedResourceToleration: a pod that requests an extended resource, such as example.com/device, tolerates
// the NoSchedule taint of that key, with which operators keep other pods from nodes that have it.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package extendedresourcetoleration
