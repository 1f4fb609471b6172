//go:build !linux

package nft

import (
	"errors"

	"skiff/internal/network/proxy/model"
)

// New fails: nftables is part of Linux.
func New(model.Config) (model.Mode, error) {
	return nil, errors.New("the service proxy mode nftables works only on Linux")
}

// MarkMode does nothing on other systems.
func MarkMode(string) error { return nil }

// ModeMarked finds no mark on other systems.
func ModeMarked(string) (bool, error) { return false, nil }

// UnmarkMode does nothing on other systems.
func UnmarkMode(string) error { return nil }

// Clean does nothing on other systems.
func Clean() error { return nil }
