// Package openapi serves the OpenAPI documents of the API: one for all of it at /openapi/v2, and one per group version below /openapi/v3,
// in JSON and in protobuf. kubectl explain, client-side validation, strategic merge in clients, and code generators use them.
//
// The documents of the built-in resources are generated at build time, from the Go types of k8s.io/api and the catalog, and are embedded
// compressed: nothing happens at start, and a document is in memory only while it is sent.
//
// Those of custom resources and of aggregated servers are added with Put, which takes a hash and functions that build them (package custom
// builds those of custom resources). They are built at the first request, kept compressed, and dropped when nobody has asked for ten minutes.
// Hashes and ETags are known without building. The one document of OpenAPI v2 is joined from pieces: the built-in document, cut where members
// can be added, and what each definition adds. A piece is compressed once, and the pieces are one stream (deflate.go), in JSON and in protobuf.
// So after a change one piece is built, however many there are, and nothing of the others is decoded.
//
// It must not import the catalog or the API server's root package: it serves bytes, so that it costs no more memory than they do.
package openapi
