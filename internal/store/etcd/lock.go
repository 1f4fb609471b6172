package etcd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// dirLock locks a data directory for one process. etcd would wait, silently and for ever, for the other to end.
type dirLock struct{ file *os.File }

func lockDir(dir string) (*dirLock, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errors.New("the directory is in use: another process, or another store in this one, has it open; stop it first")
	} else if err != nil {
		err = fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return &dirLock{file}, nil
}

// release unlocks the directory. It leaves the file, because removing it would race with the next process that locks it. Closing the file is not enough: a child
// that another goroutine is starting has it too, until it runs its program.
func (l *dirLock) release() error {
	return errors.Join(syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN), l.file.Close())
}
