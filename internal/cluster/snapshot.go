package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"skiff/internal/store/etcd"
)

// SaveSnapshot writes the state of a stopped cluster to a file.
func SaveSnapshot(ctx context.Context, dataDir, file string) (size int64, err error) {
	if _, err := os.Stat(filepath.Join(dataDir, "etcd")); err != nil {
		return 0, fmt.Errorf("%s holds no cluster: %w", dataDir, err)
	}
	release, err := Occupy(dataDir)
	if err != nil {
		return 0, fmt.Errorf("%w: stop it first, or use etcdctl snapshot save with --etcd-listen", err)
	}
	defer release()
	s, err := etcd.Embed(ctx, etcd.EmbedOptions{Dir: filepath.Join(dataDir, "etcd")})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	part := file + ".part"
	f, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer os.Remove(part)
	if err := errors.Join(s.Snapshot(ctx, f), f.Sync(), f.Close()); err != nil {
		return 0, err
	}
	info, err := os.Stat(part)
	if err != nil {
		return 0, err
	}
	return info.Size(), os.Rename(part, file)
}

// RestoreSnapshot replaces the state of a stopped cluster. What was there is moved aside.
func RestoreSnapshot(dataDir, file string) (aside string, err error) {
	release, err := Occupy(dataDir)
	if err != nil {
		return "", fmt.Errorf("%w: stop it first", err)
	}
	defer release()
	state := filepath.Join(dataDir, "etcd")
	restored := state + ".restored"
	if err := os.RemoveAll(restored); err != nil {
		return "", err
	}
	if err := etcd.Restore(file, restored); err != nil {
		return "", err
	}
	if _, err := os.Stat(state); err == nil {
		aside = state + ".before-" + time.Now().UTC().Format("20060102T150405.000")
		if err := os.Rename(state, aside); err != nil {
			return "", err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return aside, os.Rename(restored, state)
}
