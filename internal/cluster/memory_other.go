//go:build !linux

package cluster

func unmapProgram() {}
