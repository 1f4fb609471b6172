// Command gen generates the OpenAPI documents that the API server serves (openapi/documents) and the schema by which it merges objects
// (managedfields/mergeschema). Both are derived from the Go types of k8s.io/api, through kube-openapi's openapi-gen, and from the resources
// that skiff serves.
//
// Run it through generate.sh, which generates the package definitions first. check.sh checks that the files in the repository are what gen
// generates.
//
// It must not import the API server's root package: it is a module of its own, so that its dependencies are not skiff's.
package main
