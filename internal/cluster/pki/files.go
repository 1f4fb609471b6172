package pki

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	maxFileSize = 1 << 20 // of a certificate, key or bundle
	maxSyncs    = 16      // files brought to the disk at once: a journal commits them together
	partSuffix  = ".part" // of a file not yet in its place
	// lockTime bounds the wait for another process that looks at the same directory, which takes milliseconds.
	lockTime  = 10 * time.Second
	lockPause = 2 * time.Millisecond
)

// errTorn says that a file is empty or cut short, as a crash of the machine may leave it. Only such files are made anew.
var errTorn = errors.New("is empty or cut short")

// gone reports whether a file has nothing that could be lost by making it anew.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errTorn) }

const pemBegin = "-----BEGIN "

// readPEM returns a file's content, in which there is at least the beginning of something in PEM.
func readPEM(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFileSize)
	}
	data = bytes.TrimRight(data, "\x00") // some file systems fill up what never reached the disk
	if block, _ := pem.Decode(data); block != nil {
		return data, nil
	}
	if len(data) == 0 || bytes.HasPrefix(data, []byte(pemBegin)) || bytes.HasPrefix([]byte(pemBegin), data) {
		return nil, fmt.Errorf("%s %w", path, errTorn)
	}
	return nil, fmt.Errorf("%s is not in PEM", path) // somebody's, in another form
}

// file is what is to be written where.
type file struct {
	path string
	data []byte
}

// writeAll puts files in place, in their order. Each is whole at every moment, the old one or the new one, and all are on the disk when it
// returns. A crash in between may leave a key with the certificate of the one before: the next look finds that they do not fit.
func writeAll(files []file) error {
	var syncs errgroup.Group
	syncs.SetLimit(maxSyncs)
	for _, f := range files {
		syncs.Go(func() error { return writePart(f) })
	}
	if err := syncs.Wait(); err != nil {
		return err
	}
	var dirs []string
	for _, f := range files {
		if err := os.Rename(f.path+partSuffix, f.path); err != nil {
			return err
		}
		if dir := filepath.Dir(f.path); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range dirs {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

func writePart(f file) error {
	part, err := os.OpenFile(f.path+partSuffix, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = part.Write(f.data)
	return errors.Join(err, part.Sync(), part.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// prepare makes a directory only its owner may look into, and removes what a killed process had not put in place.
func prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), partSuffix) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return restrict(dir, 0o700)
}

// restrict takes away what others may do with a file. Links are left alone: where they lead is somebody else's.
func restrict(path string, mode fs.FileMode) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() == fs.ModeSymlink || info.Mode().Perm()&^mode == 0 {
		return nil
	}
	if err := os.Chmod(path, info.Mode().Perm()&mode); err != nil {
		return fmt.Errorf("others may use %s, and that cannot be changed: %w", path, err)
	}
	return nil
}

// lockDir keeps other processes from making certificates in a directory meanwhile.
func lockDir(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(lockTime); ; time.Sleep(lockPause) {
		err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { d.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || time.Now().After(deadline) {
			d.Close()
			return nil, fmt.Errorf("locking %s: %w", dir, err)
		}
	}
}

// stamp tells whether a file has changed.
type stamp struct{ size, modified int64 }

func stampsOf(paths []string) []stamp {
	stamps := make([]stamp, len(paths))
	for i, path := range paths {
		if info, err := os.Stat(path); err == nil {
			stamps[i] = stamp{info.Size(), info.ModTime().UnixNano()}
		}
	}
	return stamps
}
