// Package kmstest is a KMS v2 plugin for tests: a real one, over gRPC on a unix socket, whose faults tests choose.
//
// It must not import anything of skiff.
package kmstest
