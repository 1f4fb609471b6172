package regular

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

func open(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return reopen(fd, path, false)
}

// maxTries bounds how often a path is resolved again because something was renamed meanwhile.
const maxTries = 100

func openBeneath(dir, path string, links, dirs bool) (*os.File, error) {
	full := filepath.Join(dir, path)
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(root)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	if !links {
		how.Resolve |= unix.RESOLVE_NO_SYMLINKS
	}
	for try := 1; ; try++ {
		fd, err := unix.Openat2(root, path, &how)
		if errors.Is(err, unix.EAGAIN) && try < maxTries {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "openat2", Path: full, Err: err}
		}
		return reopen(fd, full, dirs)
	}
}

// reopen opens for reading what fd, which is closed, was opened for with O_PATH.
func reopen(fd int, path string, dirs bool) (*os.File, error) {
	defer unix.Close(fd)
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if kind := s.Mode & unix.S_IFMT; kind != unix.S_IFREG && (!dirs || kind != unix.S_IFDIR) {
		return nil, &os.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	readable, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(readable), path), nil
}
