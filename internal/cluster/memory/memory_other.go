//go:build !linux

package memory

func unmapProgram() {}
