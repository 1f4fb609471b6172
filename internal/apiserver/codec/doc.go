// Package codec encodes and decodes objects: the bodies that clients send (JSON, YAML, protobuf), the values in the store, and the
// responses and watch events built from the cache's bytes. It also negotiates the encoding of a response.
//
// It must not import the API server's root package, its registry or the store: it deals in the catalog's types and the cache's items, and
// of a request it sees only the Accept and Content-Type headers.
package codec
