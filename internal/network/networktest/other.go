//go:build !linux

// Package networktest makes network namespaces for tests with real packets, which only Linux has.
package networktest
