//go:build !linux

package stats

import (
	"errors"
	"time"
)

// procMachine runs no pods.
type procMachine struct{}

func (procMachine) BootTime() time.Time                   { return time.Time{} }
func (procMachine) Memory() (total, swap, huge uint64)    { return 0, 0, 0 }
func (procMachine) FileSystem(string) (FileSystem, error) { return FileSystem{}, errors.ErrUnsupported }
func (procMachine) Network() (Network, error)             { return Network{}, errors.ErrUnsupported }
func (procMachine) Tasks() (running, limit int64, err error) {
	return 0, 0, errors.ErrUnsupported
}

func file(string) use { return use{} }
