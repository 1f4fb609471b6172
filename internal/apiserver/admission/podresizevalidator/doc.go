// Package podresizevalidator is the admission plugin PodResizeValidator: a running pod may not be resized to more than its node has, nor on a node that is not Linux.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package podresizevalidator
