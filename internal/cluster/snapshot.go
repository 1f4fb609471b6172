package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"skiff/internal/cluster/process"
	"skiff/internal/store/etcd"
)

// SaveSnapshot writes the state of a stopped cluster to a file that does not exist yet.
func SaveSnapshot(ctx context.Context, dataDir, file string) (size int64, err error) {
	if _, err := os.Lstat(file); err == nil {
		return 0, fmt.Errorf("%s exists: name another file, or remove it", file)
	}
	if _, err := os.Stat(filepath.Join(dataDir, "etcd")); err != nil {
		return 0, fmt.Errorf("%s holds no cluster: %w", dataDir, err)
	}
	unlock, err := process.LockPIDFile(dataDir)
	if err != nil {
		return 0, fmt.Errorf("%w: stop it first, or use etcdctl snapshot save with --etcd-listen", err)
	}
	defer unlock()
	s, err := etcd.Embed(ctx, etcd.EmbedOptions{Dir: filepath.Join(dataDir, "etcd")})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	// Only its owner may read the file: it holds Secrets. O_EXCL does not follow a link either.
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return 0, fmt.Errorf("failed to create the snapshot: %w", err)
	}
	err = s.Snapshot(ctx, f)
	info, statErr := f.Stat()
	if err := errors.Join(err, statErr, f.Sync(), f.Close()); err != nil {
		return 0, errors.Join(err, os.Remove(file))
	}
	return info.Size(), nil
}

// RestoreSnapshot replaces the state of a stopped cluster by that of a snapshot. The former state is moved to the directory backup, if there was any.
func RestoreSnapshot(dataDir, file string) (backup string, err error) {
	unlock, err := process.LockPIDFile(dataDir)
	if err != nil {
		return "", fmt.Errorf("%w: stop it first", err)
	}
	defer unlock()
	state := filepath.Join(dataDir, "etcd")
	restored := state + ".restored"
	if err := os.RemoveAll(restored); err != nil {
		return "", err
	}
	if err := etcd.Restore(file, restored); err != nil {
		return "", err
	}
	if _, err := os.Stat(state); err == nil {
		backup = state + ".before-" + time.Now().UTC().Format("20060102T150405.000")
		if err := os.Rename(state, backup); err != nil {
			return "", err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return backup, os.Rename(restored, state)
}
