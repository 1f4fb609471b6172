//go:build !linux

package nft

import (
	"errors"

	"skiff/internal/network/proxy/model"
)

// New says that there is no nftables here.
func New(model.Config) (model.Mode, error) { return nil, errors.New("nftables is Linux's") }

// Clean has nothing to remove.
func Clean() error { return nil }
