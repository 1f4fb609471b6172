//go:build !linux

package kubelet

func makeBallast(string, int64) error { return errLinux }
