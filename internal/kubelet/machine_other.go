//go:build !linux

package kubelet

import (
	"context"
	"errors"
	"runtime"

	"skiff/internal/kubelet/eviction"
)

var errLinux = errors.New("nodes need Linux, this is " + runtime.GOOS)

func readMachine(*Options) (machine, error) { return machine{}, errLinux }

func diskSpace(string) (size, free int64, err error) { return 0, 0, errLinux }

func (k *Kubelet) measureMachine(context.Context) (eviction.Signals, error) {
	return eviction.Signals{}, errLinux
}
