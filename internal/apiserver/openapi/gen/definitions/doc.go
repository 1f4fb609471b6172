// Package definitions holds the OpenAPI definitions of all served Go types, as kube-openapi's openapi-gen writes them:
// 4 MB of Go that generate.sh makes anew each time and that is not checked in.
package definitions
