// Package custom builds the OpenAPI documents of custom resources from their structural schemas, when a client asks for them: v3 for one
// group version, and the part of v2 that package openapi merges into the document of the whole API.
//
// The documents are equal to upstream's (testdata has recordings). The shared types, such as ObjectMeta and DeleteOptions, are those of
// embedded built-in documents: V2 only refers to them, and V3 copies them, so that nothing of them is in memory between two requests.
//
// It must not import the catalog or the API server's root package: an Info of a definition becomes a Resource by who calls it.
package custom
