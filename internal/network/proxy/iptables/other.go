//go:build !linux

package iptables

import (
	"errors"

	"skiff/internal/network/proxy/model"
)

// New fails: iptables is part of Linux.
func New(model.Config) (model.Mode, error) {
	return nil, errors.New("the service proxy mode iptables works only on Linux")
}

// Clean does nothing on other systems.
func Clean() error { return nil }
