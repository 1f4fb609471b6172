// Package routes describes the HTTP operations of a resource: their paths, parameters, bodies, responses and names, as Kubernetes' OpenAPI
// documents list them. It depends only on what an Endpoint says of a resource, so the same code describes built-in resources, when their
// documents are generated (openapi/gen), and custom resources, while the server runs.
//
// A Service is a kube-openapi RouteContainer: pass it to kube-openapi's builder for OpenAPI v2 or builder3 for v3, with OperationID in
// their configuration.
//
// It must not import anything else of skiff.
package routes
