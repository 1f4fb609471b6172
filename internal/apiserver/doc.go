// Package apiserver serves the Kubernetes API over HTTP. A request passes the filters (filters.go), is routed by its path
// (route.go), and handled by a verb (verb_*.go) that decodes, admits and hands over to the registry. Reads come from the cache, writes
// go to the store.
//
// Everything about resources comes from the catalog; nothing here names one, but for the few that do something no other does: those are
// in the special_*.go files.
package apiserver
