//go:build !linux

package stats

import (
	"errors"
	"time"
)

// thisMachine runs no pods.
type thisMachine struct{}

func (thisMachine) BootTime() time.Time                   { return time.Time{} }
func (thisMachine) Memory() (total, swap, huge uint64)    { return 0, 0, 0 }
func (thisMachine) FileSystem(string) (FileSystem, error) { return FileSystem{}, errors.ErrUnsupported }
func (thisMachine) Network() (Network, error)             { return Network{}, errors.ErrUnsupported }
func (thisMachine) Tasks() (running, limit int64, err error) {
	return 0, 0, errors.ErrUnsupported
}

func file(string) use { return use{} }
