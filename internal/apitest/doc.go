// Package apitest runs an API server inside `go test`, for the tests of components and of packages of the API server. skifftest is the same
// for everybody else, and can start the components with it.
//
// It must not import a component (controllers, scheduler, kubelet, network): their tests import it and pass components in with
// WithComponent.
package apitest
