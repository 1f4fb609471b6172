//go:build !linux

package housekeeping

import "errors"

func allocateFile(string, int64) error { return errors.New("nodes need Linux") }
