// Package compare holds skiff's OpenAPI documents against those that Kubernetes keeps in api/openapi-spec, or that a
// running kube-apiserver serves. It is all tests:
//
//	go test ./compare                                                        # against the module cache
//	go test ./compare -live https://127.0.0.1:6443 -token $TOKEN             # against a server
package compare
