// Package mergeschema is the merge schema of every built-in kind: which fields a type has, which lists are sets or maps and by which keys,
// and what is replaced as a whole. structured-merge-diff works by it. Upstream's server computes it from the same OpenAPI definitions at
// start; here it is static data, so that linking it costs no work at start and no memory until it is used.
//
// The types are written by skiff/internal/apiserver/openapi/gen; run `go generate ./internal/apiserver/openapi`.
//
// It must not import anything else of skiff.
package mergeschema
