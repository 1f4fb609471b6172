// Package mergeschema says how objects of each built-in kind are merged: which fields a type has, which lists are sets or
// maps and by which keys, what is replaced as a whole. It is the schema that structured-merge-diff works by, and it is
// what upstream's server computes from the same OpenAPI definitions at start; here it is static data, so that linking it
// costs no work at start and no memory until it is used.
//
// The types are written by skiff/internal/apiserver/openapi/gen; run `go generate ./internal/apiserver/openapi`.
package mergeschema
