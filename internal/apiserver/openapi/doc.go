// Package openapi serves the OpenAPI documents of the API: one for all of it at /openapi/v2, and one per group version
// below /openapi/v3, in JSON and in protobuf. kubectl explain, client-side validation and strategic merge of clients, and
// code generators live on them.
//
// The documents of the built-in resources were generated at build time, from the Go types of k8s.io/api and the catalog, and
// are embedded compressed: nothing happens at start, and a document is in memory only while it is sent. Those of custom
// resources and of aggregated servers are added with Put as they come.
//
// The package knows nothing of how resources are served. It must not import the catalog, so that it costs no more than
// its bytes.
package openapi

//go:generate ./gen/generate.sh
