// Package services is shared by the loops that list the endpoints behind Services: endpoints and endpointslice. It maps a change of a pod to
// the Services whose endpoints it changes.
//
// It must not import the API server, its store or its cache, or another component.
package services
