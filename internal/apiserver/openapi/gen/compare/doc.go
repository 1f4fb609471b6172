// Package compare compares skiff's OpenAPI documents with those that Kubernetes keeps in api/openapi-spec, or that a running kube-apiserver
// serves. It consists of tests:
//
//	go test ./compare                                                        # against the module cache
//	go test ./compare -live https://127.0.0.1:6443 -token $TOKEN             # against a server
//
// It must not import the API server's root package: it compares files.
package compare
