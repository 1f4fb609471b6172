//go:build !linux

// Package traces lists what there is on a machine, for tests of what leaves nothing behind.
package traces
