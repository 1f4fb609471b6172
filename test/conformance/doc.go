// Package conformance runs upstream's e2e suite against a skiff cluster (run.sh), stores the result of each spec (results) and writes
// docs/conformance.md from them.
//
// It must not import k8s.io/kubernetes: upstream is what skiff is compared with, never a part of it.
package conformance
