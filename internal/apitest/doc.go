// Package apitest runs an API server inside `go test`, for the tests of components: it knows none of them. skifftest is the same for
// everybody else, and can start them with it.
package apitest
