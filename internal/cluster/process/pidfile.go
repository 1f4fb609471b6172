package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skiff/internal/cluster/datadir"
)

// PIDFileName is the name of the pid file in a data directory.
const PIDFileName = "skiff.pid"

const (
	lockTries = 20
	lockPause = 5 * time.Millisecond
)

func pidPath(dataDir string) string { return filepath.Join(dataDir, PIDFileName) }

// LockPIDFile makes this process the one that uses a data directory, until unlock is called or the process ends. It fails if another process uses it.
func LockPIDFile(dataDir string) (unlock func(), err error) {
	if err := datadir.Prepare(dataDir); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(pidPath(dataDir), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("another skiff uses %s", dataDir)
	}
	if err := f.Truncate(0); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		f.Close()
		return nil, err
	}
	// The file stays: were it removed, one process could lock the old file and another the new one.
	return func() { f.Close() }, nil
}

// flock locks a file for as long as it is open. It tries several times, because PID holds the lock for a moment to see whether it is free.
func flock(f *os.File) (err error) {
	for range lockTries {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return nil
		}
		time.Sleep(lockPause)
	}
	return err
}

// PID returns the process that uses a data directory, or 0 if none does. The lock says whether there is one: the number in the file may be another program's
// by now.
func PID(dataDir string) (int, error) {
	if err := datadir.Check(dataDir); err != nil { // the number in the file is trusted, and the process may be signalled
		return 0, err
	}
	f, err := os.Open(pidPath(dataDir))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for range lockTries { // a process locks the file a moment before it writes its number
		if syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil {
			return 0, nil
		}
		var buf [32]byte
		n, _ := f.ReadAt(buf[:], 0)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n]))); err == nil {
			return pid, nil
		}
		time.Sleep(lockPause)
	}
	return 0, fmt.Errorf("%s is locked by a process that has not written its pid there", pidPath(dataDir))
}

// CheckUnused fails if a process uses a data directory.
func CheckUnused(dataDir string) error {
	if pid, err := PID(dataDir); err != nil || pid != 0 {
		return errors.Join(err, fmt.Errorf("%s is still in use by process %d", dataDir, pid))
	}
	return nil
}

// LockDirectory locks a directory against other commands that lock it, until unlock is called. It waits for them, and returns the error busy if ctx ends first.
func LockDirectory(ctx context.Context, dir string, busy error) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		select {
		case <-ctx.Done():
			f.Close()
			return nil, busy
		case <-time.After(lockPause):
		}
	}
	return func() { f.Close() }, nil
}
