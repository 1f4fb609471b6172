// Package custom builds the OpenAPI documents of custom resources from their structural schemas, when a client asks for them: v3 for one
// group version, and the part of v2 that package openapi merges into the document of the whole API.
//
// Its documents are upstream's, with two differences. In v2 the types that all resources share, such as ObjectMeta and DeleteOptions, are
// those of the built-in document, where upstream adds some of them a second time as DeleteOptions_v2. In v3 their definitions are taken from
// an embedded document of a built-in group version, so that nothing of them is in memory between two requests.
//
// It must not import the catalog or the API server's root package: an Info of a definition becomes a Resource by who calls it.
package custom
