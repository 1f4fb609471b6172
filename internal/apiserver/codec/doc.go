// Package codec turns objects into bytes and back: the bodies clients send (JSON, YAML, protobuf), the values in the store, and the
// answers and watch frames built from the cache's bytes. It also negotiates which of these a client gets.
//
// It knows the catalog's types and the cache's items, and nothing of requests beyond their Accept and Content-Type.
package codec
