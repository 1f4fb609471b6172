// Package openapi serves the OpenAPI documents of the API: one for all of it at /openapi/v2, and one per group version below /openapi/v3,
// in JSON and in protobuf. kubectl explain, client-side validation, strategic merge in clients, and code generators use them.
//
// The documents of the built-in resources are generated at build time, from the Go types of k8s.io/api and the catalog, and are embedded
// compressed: nothing happens at start, and a document is in memory only while it is sent. Those of custom resources and of aggregated
// servers are added with Put.
//
// It must not import the catalog or the API server's root package: it serves bytes, so that it costs no more memory than they do.
package openapi
