//go:build !linux

package kubelet

import (
	"errors"
	"runtime"
)

var errLinux = errors.New("nodes need Linux, this is " + runtime.GOOS)

func readMachine(*Options) (machine, error) { return machine{}, errLinux }

func diskSpace(string) (size, free int64, err error) { return 0, 0, errLinux }
