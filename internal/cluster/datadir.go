package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// PrepareDataDir makes a data directory that only its owner may enter, and refuses one that other users could change. Keys, tokens and
// programs that run as root are kept there.
func PrepareDataDir(dir string) error {
	if err := CheckDirectory(dir); err != nil { // before anything is written below a directory of another user
		return fmt.Errorf("the data directory %s is refused: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	if err := CheckDirectory(dir); err != nil { // again: another user may have been quicker to make it in a directory such as /tmp
		return fmt.Errorf("the data directory %s is refused: %w", dir, err)
	}
	return os.Chmod(dir, 0o700)
}

// CheckDataDir refuses a data directory that other users could change. One that does not exist is in order if nobody else could make it.
func CheckDataDir(dir string) error {
	if err := CheckDirectory(dir); err != nil {
		return fmt.Errorf("the data directory %s is refused: %w", dir, err)
	}
	return nil
}

// CheckDirectory looks at a directory and everything on the way to it, as sshd does with StrictModes: each must belong to root or to the
// user of this process, and nobody else may write to it. On the way, and only there, a sticky directory such as /tmp may be written to by
// all: nobody can remove or rename what another user has in it.
func CheckDirectory(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	at, rest := "/", strings.Split(strings.TrimPrefix(dir, "/"), "/")
	for links := 0; ; {
		info, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // what is made below a directory that is in order is in order
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
			to, err := os.Readlink(at)
			if err != nil {
				return err
			}
			if !filepath.IsAbs(to) {
				to = filepath.Join(filepath.Dir(at), to)
			}
			at, rest = "/", append(strings.Split(strings.TrimPrefix(filepath.Clean(to), "/"), "/"), rest...)
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

func checkMode(path string, info fs.FileInfo, last bool) error {
	switch writable := info.Mode().Perm()&0o022 != 0; {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", path)
	case !writable || !last && info.Mode()&fs.ModeSticky != 0:
		return nil
	}
	return fmt.Errorf("other users may write to %s (mode %#o); \"chmod go-w %s\" takes that away, if nobody else could have put anything there", path, info.Mode().Perm(), path)
}

// writePrivate puts a file that only its owner may read in place of one that is there, whole at every moment, without following a link.
// It need not have reached the disk: the next start writes it again.
func writePrivate(file string, data []byte) error {
	part := file + partSuffix
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
