//go:build !linux

package cli

func keepDescriptors() {}
