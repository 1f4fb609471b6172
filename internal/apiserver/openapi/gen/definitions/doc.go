// Package definitions holds the OpenAPI definitions of all served Go types, as kube-openapi's openapi-gen writes them: 4 MB of Go that
// generate.sh generates each time and that is not checked in.
//
// It must not import anything of skiff: it is generated.
package definitions
