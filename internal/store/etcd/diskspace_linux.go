package etcd

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// freeBytes returns how many bytes can still be written to the file system of a directory.
func freeBytes(dir string) (bytes int64, known bool) {
	var now syscall.Statfs_t
	if err := syscall.Statfs(dir, &now); err != nil {
		return 0, false
	}
	return int64(now.Bavail) * now.Bsize, true
}

// reserveBlocks allocates blocks of a file up to a size without changing its length.
func reserveBlocks(f *os.File, size int64) bool {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size) == nil
}
