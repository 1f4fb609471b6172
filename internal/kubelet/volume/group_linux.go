package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// setGroup gives a directory and everything in it to a group: files it may read, and write unless readOnly; directories hand the group on to
// what is made in them. It goes by open files, not by names, and follows no link: pods may be at work in a volume and must not be able to
// lead it elsewhere.
func setGroup(ctx context.Context, dir string, group int64, readOnly bool) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	g := groupSetter{ctx: ctx, group: int(group), bits: 0o660}
	if readOnly {
		g.bits = 0o440
	}
	if err := g.set(fd, 0); err != nil {
		return fmt.Errorf("giving %s to group %d: %w", dir, group, err)
	}
	return nil
}

type groupSetter struct {
	ctx   context.Context
	group int
	bits  uint32
}

// maxDepth bounds how deep directories may lie in each other: each takes an open file.
const maxDepth = 500

func (g *groupSetter) set(fd, depth int) error {
	if err := g.ctx.Err(); err != nil {
		return err
	}
	if depth > maxDepth {
		return errors.New("its directories lie too deep in each other")
	}
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return err
	}
	bits := g.bits
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		bits |= unix.S_ISGID | 0o110
		if err := g.entries(fd, depth); err != nil {
			return err
		}
	}
	if err := unix.Fchownat(fd, "", -1, g.group, unix.AT_EMPTY_PATH); err != nil {
		return err
	}
	if s.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil // a link has no mode of its own
	}
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), s.Mode&0o7777|bits)
}

func (g *groupSetter) entries(fd, depth int) error {
	readable, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	d := os.NewFile(uintptr(readable), "")
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return err
	}
	for _, name := range names {
		child, err := unix.Openat(fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			continue // removed meanwhile
		}
		if err == nil {
			err = errors.Join(g.set(child, depth+1), unix.Close(child))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func groupOf(info os.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(s.Gid)
	}
	return -1
}
