package store

import (
	"errors"
	"fmt"
	"strings"
)

// Validate returns an error for options that are invalid in every engine, so that all engines refuse the same.
func (o PutOptions) Validate() error {
	if o.TTL < 0 {
		return fmt.Errorf("time to live %v is negative", o.TTL)
	}
	return ValidateGuard(o.IfRevision)
}

// Validate returns an error for options that are invalid in every engine, so that all engines refuse the same.
func (o ListOptions) Validate(prefix string) error {
	switch {
	case o.Revision < 0:
		return fmt.Errorf("revision %d is negative", o.Revision)
	case o.Limit < 0:
		return fmt.Errorf("limit %d is negative", o.Limit)
	case o.From != "" && !strings.HasPrefix(o.From, prefix):
		return fmt.Errorf("start key %q does not begin with prefix %q", o.From, prefix)
	}
	return nil
}

// ValidateKey returns an error for a key that cannot be stored.
func ValidateKey(key string) error {
	if key == "" {
		return errors.New("key is empty")
	}
	return nil
}

// ValidateGuard returns an error for a guard that is neither a revision nor AnyRevision.
func ValidateGuard(ifRevision int64) error {
	if ifRevision < AnyRevision {
		return fmt.Errorf("guard %d is not a revision", ifRevision)
	}
	return nil
}
