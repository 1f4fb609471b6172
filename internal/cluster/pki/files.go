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
	maxFileSize = 1 << 20 // size of a certificate, key or bundle
	maxSyncs    = 16      // files synced concurrently: a journal commits them together
	partSuffix  = ".part" // of a file that is not renamed yet
	// lockTime bounds the wait for another process that reconciles the same directory, which takes milliseconds.
	lockTime  = 10 * time.Second
	lockPause = 2 * time.Millisecond
)

// errTorn says that a file is empty or cut short, as a crash of the machine may leave it. Only such files are replaced.
var errTorn = errors.New("is empty or cut short")

// missingOrTorn reports whether nothing is lost if a file is replaced: it is missing or cut short.
func missingOrTorn(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errTorn) }

const pemBegin = "-----BEGIN "

// readPEM returns the content of a file that has at least one PEM block.
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
	data = bytes.TrimRight(data, "\x00") // some file systems fill what was not synced with zeros
	if block, _ := pem.Decode(data); block != nil {
		return data, nil
	}
	if len(data) == 0 || bytes.HasPrefix(data, []byte(pemBegin)) || bytes.HasPrefix([]byte(pemBegin), data) {
		return nil, fmt.Errorf("%s %w", path, errTorn)
	}
	return nil, fmt.Errorf("%s is not in PEM", path) // a file of somebody else, in another format
}

// file is a file to write.
type file struct {
	path string
	data []byte
}

// writeAll replaces files by renames, in order, so that readers see the old content or the new. All are on disk when it
// returns. A crash in between may leave a key with the certificate of the one before: the next reconciliation finds that they do not match.
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

// prepare makes a directory that only its owner may read, and removes the temporary files of a killed process.
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

// restrict removes the permissions of others on a file. Links are left alone: their targets are somebody else's.
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

// lockDir locks a directory against other processes that make certificates in it.
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

// stamp identifies the version of a file.
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
