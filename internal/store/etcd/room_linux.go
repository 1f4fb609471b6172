package etcd

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// diskLeft is how much can still be written to a disk.
func diskLeft(dir string) (bytes int64, known bool) {
	var now syscall.Statfs_t
	if err := syscall.Statfs(dir, &now); err != nil {
		return 0, false
	}
	return int64(now.Bavail) * now.Bsize, true
}

// reserveBlocks has a file keep blocks of the disk up to a size that it does not have yet.
func reserveBlocks(f *os.File, size int64) bool {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size) == nil
}
