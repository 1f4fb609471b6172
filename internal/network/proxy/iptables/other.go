//go:build !linux

package iptables

import (
	"errors"

	"skiff/internal/network/proxy/model"
)

// New says that there is no iptables here.
func New(model.Config) (model.Mode, error) { return nil, errors.New("iptables is Linux's") }

// Clean has nothing to remove.
func Clean() error { return nil }
