package housekeeping

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocateFile creates a file whose blocks are allocated on the disk but not written.
func allocateFile(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, size), f.Close())
}
