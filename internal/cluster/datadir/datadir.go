package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Prepare makes a data directory that only its owner may enter, and refuses one that other users could change.
func Prepare(dir string) error {
	if err := Check(dir); err != nil { // before anything is written below a directory of another user
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("failed to make the data directory: %w", err)
	}
	if err := Check(dir); err != nil { // again: another user may have been quicker to make it in a directory such as /tmp
		return err
	}
	return os.Chmod(dir, 0o700)
}

// Check refuses a data directory that other users could change. One that does not exist passes if nobody else could make it.
func Check(dir string) error {
	if err := CheckOwnership(dir); err != nil {
		return fmt.Errorf("the data directory %s is refused: %w", dir, err)
	}
	return nil
}

// maxLinks bounds the symbolic links on the way to a directory.
const maxLinks = 16

// CheckOwnership checks a directory and every directory and symbolic link on the way to it, as sshd does with StrictModes: each must belong to root or to the
// user of this process, and nobody else may write to it. Only directories on the way may be writable by all if they are sticky, such as /tmp: nobody can
// remove or rename what another user has in them.
func CheckOwnership(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	at, rest := "/", strings.Split(strings.TrimPrefix(dir, "/"), "/")
	for links := 0; ; {
		info, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a directory made below one that passed will pass too
		}
		if err != nil {
			return err
		}
		if err := checkOwner(at, info); err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			if links++; links > maxLinks {
				return fmt.Errorf("%s: too many links", at)
			}
			target, err := os.Readlink(at)
			if err != nil {
				return err
			}
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(at), target)
			}
			at, rest = "/", append(strings.Split(strings.TrimPrefix(filepath.Clean(target), "/"), "/"), rest...)
			continue
		}
		for len(rest) > 0 && rest[0] == "" {
			rest = rest[1:]
		}
		if err := checkMode(at, info, len(rest) == 0); err != nil || len(rest) == 0 {
			return err
		}
		at, rest = filepath.Join(at, rest[0]), rest[1:]
	}
}

func checkOwner(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid == 0 || int(stat.Uid) == os.Geteuid() {
		return nil
	}
	return fmt.Errorf("%s belongs to the user with uid %d, who could change what is in it; use a directory of your own, or chown it if nobody else could have put anything there", path, stat.Uid)
}

// checkMode checks who may write to a directory; last says that it is the directory itself and not one on the way to it.
func checkMode(path string, info fs.FileInfo, last bool) error {
	switch writable := info.Mode().Perm()&0o022 != 0; {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", path)
	case !writable || !last && info.Mode()&fs.ModeSticky != 0:
		return nil
	}
	return fmt.Errorf("other users may write to %s (mode %#o); \"chmod go-w %s\" takes that away, if nobody else could have put anything there", path, info.Mode().Perm(), path)
}

// PartSuffix ends the name of a file that WriteFile has not yet renamed to its final name.
const PartSuffix = ".part"

// WriteFile replaces a file by one that only its owner may read, by a rename, so that readers see the old content or the new, and without following a
// symbolic link. It does not sync to disk: the next start of skiff writes the file again.
func WriteFile(file string, data []byte) error {
	part := file + PartSuffix
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return os.Rename(part, file)
}
