package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"skiff/internal/mounts"
)

// mountMemory mounts a tmpfs that everyone may write to, of the pod's group if it has one. It is sticky, as file systems in memory are
// by default. What is mounted already stays. It is kept out of swap where the kernel can (since 6.3).
func mountMemory(dir string, size int64, group *int64) error {
	options := "mode=01777"
	if group != nil {
		options = fmt.Sprintf("mode=03777,gid=%d", *group)
	}
	if size > 0 {
		options += fmt.Sprintf(",size=%d", size)
	}
	return mountOnce(dir, func() error {
		err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RELATIME, options+",noswap")
		if errors.Is(err, unix.EINVAL) {
			err = unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RELATIME, options)
		}
		return err
	})
}

func mountHugePages(dir, size string, group *int64) error {
	options := "mode=0777,pagesize=" + size
	if group != nil {
		options = fmt.Sprintf("mode=02777,gid=%d,pagesize=%s", *group, size)
	}
	return mountOnce(dir, func() error { return unix.Mount("nodev", dir, "hugetlbfs", unix.MS_RELATIME, options) })
}

func mountOnce(dir string, mount func() error) error {
	if there, err := mountedAt(dir); there || err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := mount(); err != nil {
		return errors.Join(fmt.Errorf("mounting %s: %w", dir, err), os.Remove(dir))
	}
	return nil
}

// bindOptions are the options of a persistent volume that a bound directory can have.
var bindOptions = map[string]uintptr{"bind": 0, "rw": 0, "ro": unix.MS_RDONLY, "noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME,
	"relatime": unix.MS_RELATIME, "nodev": unix.MS_NODEV, "nosuid": unix.MS_NOSUID, "noexec": unix.MS_NOEXEC}

// bindDir bind-mounts a directory. Options take a second mount call: the first one ignores them.
func bindDir(source, dir string, readOnly bool, options []string) error {
	var flags uintptr
	for _, o := range options {
		flag, ok := bindOptions[o]
		if !ok {
			return fmt.Errorf("mount option %q is not supported for local volumes", o)
		}
		flags |= flag
	}
	if readOnly {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount(source, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", dir, err)
	}
	if flags == 0 {
		return nil
	}
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return errors.Join(fmt.Errorf("mounting %s: %w", dir, err), unix.Unmount(dir, unix.UMOUNT_NOFOLLOW))
	}
	return nil
}

// mountedAt reports whether something is mounted on exactly this path. A path that does not exist has nothing mounted.
func mountedAt(path string) (bool, error) {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, 0, &s)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err == nil && s.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 { // kernels since 5.8
		return s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false, err
	}
	mounts, err := mountsBelow(resolved)
	return len(mounts) > 0 && mounts[0] == resolved, err
}

// unmountBelow unmounts everything that is mounted on a directory or below it, the last first, until the kernel's table has nothing there any
// more. What is in use is detached: it vanishes here now, and for good when its last user ends.
func unmountBelow(ctx context.Context, dir string) error {
	resolved, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for range 10 { // mounts may lie on top of each other, and propagation may bring some back
		mounts, err := mountsBelow(resolved)
		if err != nil || len(mounts) == 0 {
			return err
		}
		for i := len(mounts) - 1; i >= 0; i-- {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := unix.Unmount(mounts[i], unix.UMOUNT_NOFOLLOW)
			if errors.Is(err, unix.EBUSY) {
				err = unix.Unmount(mounts[i], unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
			}
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // gone already
				return fmt.Errorf("unmounting %s: %w", mounts[i], err)
			}
		}
	}
	return fmt.Errorf("%s still has mounts below it", resolved)
}

// mountsBelow returns the mount points at or below a directory, in the order they were mounted.
func mountsBelow(dir string) ([]string, error) {
	table, err := mounts.Table()
	if err != nil {
		return nil, err
	}
	var points []string
	for _, m := range table {
		if m.At == dir || strings.HasPrefix(m.At, dir+"/") {
			points = append(points, m.At)
		}
	}
	return points, nil
}

// Unmount unmounts everything that is mounted on a path or below it. A path that does not exist has nothing mounted.
func Unmount(ctx context.Context, path string) error { return unmountBelow(ctx, path) }
