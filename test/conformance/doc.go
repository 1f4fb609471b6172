// Package conformance runs upstream's e2e suite against a cluster of skiff's (run.sh), keeps what became of each spec (results) and writes
// docs/conformance.md from that.
package conformance
