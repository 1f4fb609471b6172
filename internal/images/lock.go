package images

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// The lock of the directory is shared by processes that add blobs, and exclusive for one that removes them.
const (
	shared = syscall.LOCK_SH
	alone  = syscall.LOCK_EX
)

// lockTime bounds the wait for the lock.
const lockTime = 2 * time.Minute

func (s *Store) lock(ctx context.Context, how int) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	f, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for wait := time.Millisecond; syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB) != nil; wait = min(2*wait, 100*time.Millisecond) {
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("%s is locked by another process: %w", s.dir, ctx.Err())
		case <-time.After(wait):
		}
	}
	return func() { f.Close() }, nil
}
