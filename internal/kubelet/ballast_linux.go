package kubelet

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// makeBallast makes a file that takes room on the disk, and none elsewhere.
func makeBallast(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, size), f.Close())
}
