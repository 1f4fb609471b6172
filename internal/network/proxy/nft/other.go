//go:build !linux

package nft

import (
	"errors"

	"skiff/internal/network/proxy/model"
)

// New says that there is no nftables here.
func New(model.Config) (model.Mode, error) { return nil, errors.New("nftables is Linux's") }

// Trace leaves no trace.
func Trace(string) error { return nil }

// Traced finds none.
func Traced(string) (bool, error) { return false, nil }

// Untrace removes none.
func Untrace(string) error { return nil }

// Clean has nothing to remove.
func Clean() error { return nil }
