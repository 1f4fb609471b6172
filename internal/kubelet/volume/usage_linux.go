package volume

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// usageOf returns what a file system says of itself, and if count is set what the files below a directory take, each once however many names it
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
	fd, err := unix.Open(dir, openDir, 0)
	if err != nil {
		return Usage{}, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	c := usageCounter{ctx: ctx, usage: &u, linked: map[fileID]bool{}}
	err = c.directory(fd, 0)
	return u, err
}

const (
	// openDir opens a directory and nothing else: a container may replace one by a symbolic link or a FIFO at any moment.
	openDir = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	// maxLinked bounds how many files with several names are remembered. The names of further ones count as files of their own.
	maxLinked = 100_000
	// namesAtOnce bounds how many names of a directory are read into memory.
	namesAtOnce = 1000
)

// fileID identifies a file, whatever its name.
type fileID struct{ dev, ino uint64 }

// usageCounter sums up what the files below a directory take.
type usageCounter struct {
	ctx    context.Context
	usage  *Usage
	linked map[fileID]bool // files with several names that are counted
}

// directory counts an open directory, which is closed, and all that is in it.
func (c *usageCounter) directory(fd, depth int) error {
	d := os.NewFile(uintptr(fd), "")
	defer d.Close()
	if depth > maxDepth {
		return errors.New("its directories lie too deep in each other")
	}
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return err
	}
	c.add(&s)
	for {
		names, err := d.Readdirnames(namesAtOnce)
		for _, name := range names {
			if err := c.entry(fd, name, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *usageCounter) entry(dir int, name string, depth int) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	var s unix.Stat_t
	if err := unix.Fstatat(dir, name, &s, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT); err != nil {
		return nil // removed meanwhile
	}
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		fd, err := unix.Openat(dir, name, openDir, 0)
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP): // removed or replaced meanwhile
			return nil
		case err != nil:
			return &fs.PathError{Op: "open", Path: name, Err: err}
		}
		return c.directory(fd, depth+1)
	}
	if file := (fileID{uint64(s.Dev), s.Ino}); s.Nlink > 1 {
		if c.linked[file] {
			return nil
		}
		if len(c.linked) < maxLinked {
			c.linked[file] = true
		}
	}
	c.add(&s)
	return nil
}

func (c *usageCounter) add(s *unix.Stat_t) {
	c.usage.Used += uint64(s.Blocks) * 512
	c.usage.InodesUsed++
}
