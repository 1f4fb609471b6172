// Package routes says which HTTP operations a resource has: their paths, parameters, bodies, answers and names, as
// Kubernetes' OpenAPI documents list them. It knows resources only by what an Endpoint says of them, so the same code
// describes the built-in ones, when their documents are generated (openapi/gen), and custom ones, while the server runs.
//
// A Service is a kube-openapi RouteContainer: hand it to kube-openapi's builder for OpenAPI v2 or builder3 for v3, with
// OperationID in their configuration.
package routes
