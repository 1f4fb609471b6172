package disk

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"skiff/internal/mounts"
)

// mountFlags are the mount options that are flags; all others are for the file system.
var mountFlags = map[string]uintptr{"rw": 0, "defaults": 0, "ro": unix.MS_RDONLY, "noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
	"strictatime": unix.MS_STRICTATIME, "lazytime": unix.MS_LAZYTIME, "sync": unix.MS_SYNCHRONOUS, "dirsync": unix.MS_DIRSYNC, "nodev": unix.MS_NODEV, "nosuid": unix.MS_NOSUID,
	"noexec": unix.MS_NOEXEC}

func mountOptions(options []string) (flags uintptr, data []string) {
	for _, list := range options {
		for o := range strings.SplitSeq(list, ",") {
			if flag, ok := mountFlags[o]; ok {
				flags |= flag
			} else if o != "" {
				data = append(data, o)
			}
		}
	}
	return flags, data
}

// mountedAt returns the device of what is mounted at exactly this path, and zero if nothing is.
func mountedAt(path string) (dev uint64, err error) {
	var s unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, 0, &s)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("failed to find out what is mounted at %s: %w", path, err)
	}
	if s.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return 0, nil
	}
	if s.Mode&unix.S_IFMT == unix.S_IFBLK {
		return unix.Mkdev(s.Rdev_major, s.Rdev_minor), nil
	}
	return unix.Mkdev(s.Dev_major, s.Dev_minor), nil
}

// mountPoints returns where a device is mounted, the last first.
func mountPoints(dev uint64) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	want := fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	var points []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 2 && fields[2] == want {
			for _, m := range mounts.Parse(lines.Bytes()) {
				points = append([]string{m.At}, points...)
			}
		}
	}
	return points, lines.Err()
}

// unmount unmounts all that is mounted at exactly this path.
func unmount(path string) error {
	for range 100 { // mounts may lie on top of each other
		there, err := mountedAt(path)
		if err != nil || there == 0 {
			return err
		}
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmounting %s: %w", path, err)
		}
	}
	return fmt.Errorf("%s has too many mounts on top of each other", path)
}
