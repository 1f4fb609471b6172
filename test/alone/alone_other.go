//go:build !linux

package alone

import "errors"

var errLinux = errors.New("these tests run on Linux only")

func outer() (int, error)   { return 1, errLinux }
func prepare() (int, error) { return 1, errLinux }
