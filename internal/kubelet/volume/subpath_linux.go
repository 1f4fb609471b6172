package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// bindSubPath binds a path in a volume to a place of the kubelet's own, for the runtime to mount from there. Containers can change a volume
// at any moment, for example put a link to the node's root where a directory was. So the path is opened in one step in which the kernel
// refuses to leave the volume, and what was opened is bound, whatever the name stands for by then. Links that stay in the volume are
// followed.
func bindSubPath(volume, subPath, target string) error {
	root, err := unix.Open(volume, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: volume, Err: err}
	}
	defer unix.Close(root)
	subPath = path.Clean(subPath)
	fd, err := openBeneath(root, subPath)
	if errors.Is(err, unix.ENOENT) {
		if err = makeBeneath(root, subPath); err == nil {
			fd, err = openBeneath(root, subPath)
		}
	}
	if err != nil {
		return fmt.Errorf("%s in %s: %w", subPath, volume, err)
	}
	defer unix.Close(fd)
	var source unix.Stat_t
	if err := unix.Fstat(fd, &source); err != nil {
		return err
	}
	there, err := mountedAt(target)
	if err != nil && !errors.Is(err, unix.ESTALE) && !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, unix.EIO) {
		return err
	}
	if there || err != nil {
		var bound unix.Stat_t
		if err == nil && unix.Lstat(target, &bound) == nil && bound.Dev == source.Dev && bound.Ino == source.Ino {
			return nil
		}
		// The path stands for another file now, or what is bound does not answer any more.
		if err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmounting %s: %w", target, err)
		}
	}
	if err := makeTarget(target, source.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), target, "", unix.MS_BIND, ""); err != nil {
		return errors.Join(fmt.Errorf("mounting %s: %w", target, err), os.Remove(target))
	}
	return nil
}

// makeTarget makes the place to bind to: a directory for a directory, a file for anything else.
func makeTarget(target string, dir bool) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	if info, err := os.Lstat(target); err == nil && info.IsDir() != dir {
		if err := os.Remove(target); err != nil {
			return err
		}
	}
	if dir {
		if err := os.Mkdir(target, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

// openBeneath opens a path below an open directory without reading from it, and never anything outside.
func openBeneath(root int, subPath string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	for range 100 {
		fd, err := unix.Openat2(root, subPath, &how)
		switch {
		case errors.Is(err, unix.EAGAIN): // something was renamed meanwhile, so that the kernel could not be sure
			continue
		case errors.Is(err, unix.EXDEV):
			return -1, errors.New("it leads out of the volume")
		case errors.Is(err, unix.ENOSYS):
			return -1, errors.New("subPath needs the system call openat2, which Linux has since 5.6")
		}
		return fd, err
	}
	return -1, unix.EAGAIN
}

// makeBeneath makes directories below an open directory, with the mode of that one: then a pod's group can use them as it can the volume.
func makeBeneath(root int, subPath string) error {
	var s unix.Stat_t
	if err := unix.Fstat(root, &s); err != nil {
		return err
	}
	parent, err := unix.Dup(root)
	if err != nil {
		return err
	}
	defer func() { unix.Close(parent) }()
	sofar := ""
	for part := range strings.SplitSeq(subPath, "/") {
		sofar = path.Join(sofar, part)
		fd, err := openBeneath(root, sofar)
		if errors.Is(err, unix.ENOENT) {
			fd, err = makeIn(parent, part, s.Mode&0o7777)
		}
		if err != nil {
			return err
		}
		unix.Close(parent)
		parent = fd
	}
	return nil
}

func makeIn(parent int, name string, mode uint32) (int, error) {
	if err := unix.Mkdirat(parent, name, mode); err != nil {
		return -1, err
	}
	fd, err := unix.Openat(parent, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode); err != nil { // the umask may have removed bits
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
