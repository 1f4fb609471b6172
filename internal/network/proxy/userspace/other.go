//go:build !linux

package userspace

import (
	"errors"

	"skiff/internal/network/proxy/model"
)

// New fails: the mode needs iptables, which is part of Linux.
func New(model.Config) (model.Mode, error) {
	return nil, errors.New("the service proxy mode userspace works only on Linux")
}

// Clean does nothing on other systems.
func Clean() error { return nil }
