//go:build !linux

package machine

import (
	"context"
	"errors"
	"runtime"

	"skiff/internal/kubelet/eviction"
)

var errLinux = errors.New("nodes need Linux, this is " + runtime.GOOS)

// Read fails: nodes need Linux.
func Read(Options) (*Machine, error) { return nil, errLinux }

// DiskSpace fails: nodes need Linux.
func DiskSpace(string) (size, free int64, err error) { return 0, 0, errLinux }

// Signals fails: nodes need Linux.
func (m *Machine) Signals(context.Context, string, ImageFs, PodsUsage) (eviction.Signals, error) {
	return eviction.Signals{}, errLinux
}
