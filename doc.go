// Package skiff is a complete Kubernetes in one program. The program is in cmd/skiff; its parts are in internal, one package per part
// of Kubernetes; skifftest is a full API server for tests. docs/guide.md walks through them in the order of a request's journey.
package skiff
