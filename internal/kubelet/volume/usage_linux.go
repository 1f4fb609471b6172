package volume

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// usageOf is what a file system says of itself, and if count is set what the files below a directory take, each once however many names it
// has. Files that come and go meanwhile are counted or not.
func usageOf(ctx context.Context, dir string, count bool) (Usage, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return Usage{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	block := uint64(s.Bsize)
	u := Usage{Capacity: s.Blocks * block, Available: s.Bavail * block, InodesLimit: s.Files, InodesFree: s.Ffree}
	if !count {
		u.Used, u.InodesUsed = (s.Blocks-s.Bfree)*block, s.Files-s.Ffree
		return u, nil
	}
	type file struct{ dev, ino uint64 }
	seen := map[file]bool{} // files with several names; few have
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil // removed meanwhile
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if st.Nlink > 1 && !info.IsDir() {
			key := file{uint64(st.Dev), st.Ino}
			if seen[key] {
				return nil
			}
			seen[key] = true
		}
		u.Used += uint64(st.Blocks) * 512
		u.InodesUsed++
		return nil
	})
	return u, err
}
