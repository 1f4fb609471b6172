package plugins

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watch tells when something in directories is created or removed.
type watch struct {
	file *os.File

	mu   sync.Mutex
	dirs map[int]string // by watch descriptor
}

func newWatch() (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	return &watch{file: os.NewFile(uintptr(fd), "inotify"), dirs: map[int]string{}}, nil
}

// add watches a directory, and reports whether it was not watched before.
func (w *watch) add(dir string) (isNew bool, err error) {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return false, err
	}
	var wd int
	var addErr error
	err = raw.Control(func(fd uintptr) {
		wd, addErr = unix.InotifyAddWatch(int(fd), dir, unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO|unix.IN_ONLYDIR)
	})
	if err == nil && addErr != nil {
		err = &os.PathError{Op: "inotify_add_watch", Path: dir, Err: addErr}
	}
	if err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	isNew = w.dirs[wd] != dir
	w.dirs[wd] = dir
	return isNew, nil
}

// wait returns when something has changed. What exactly is for the caller to see.
func (w *watch) wait() error {
	buffer := make([]byte, 4096)
	_, err := w.file.Read(buffer)
	return err
}

func (w *watch) close() { w.file.Close() }

// identify returns the identity of a file.
func identify(path string) (identity, bool) {
	var s unix.Stat_t
	if unix.Lstat(path, &s) != nil {
		return identity{}, false
	}
	return identity{device: uint64(s.Dev), inode: s.Ino, changed: s.Mtim.Nano()}, true
}
