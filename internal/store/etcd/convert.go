package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

// A data directory holds the database and, beside it, either Raft's log (of etcd's server) or the log of a singleMember. To convert it,
// the database is brought up to date from the log, which is then removed.

// convertToSingle converts a directory that etcd's server wrote to one of a singleMember.
func convertToSingle(ctx context.Context, cfg config.ServerConfig, quota int64, log *logCore) error {
	if err := removeLeftovers(cfg); err != nil {
		return err
	}
	_, unfinished := os.Stat(filepath.Join(cfg.DataDir, markerName))
	if !wal.Exist(cfg.WALDir()) && errors.Is(unfinished, os.ErrNotExist) {
		return nil
	}
	s, err := openServer(ctx, cfg, quota, log)
	if err != nil {
		return err
	}
	if err := s.stop(); err != nil {
		return err
	}
	log.unmute()
	if err := moveAside(cfg.WALDir()); err != nil {
		return err
	}
	return removeLeftovers(cfg)
}

// convertToServer converts a directory of a singleMember to one from which etcd's server starts a cluster.
func convertToServer(ctx context.Context, cfg config.ServerConfig) error {
	if err := removeLeftovers(cfg); err != nil {
		return err
	}
	if wal.Exist(changeLogDir(cfg)) {
		l, err := openSingle(ctx, cfg)
		if err != nil {
			return err
		}
		if err := l.stop(); err != nil {
			return err
		}
		if err := moveAside(changeLogDir(cfg)); err != nil {
			return err
		}
		if err := removeLeftovers(cfg); err != nil {
			return err
		}
	}
	if _, err := os.Stat(cfg.BackendPath()); err != nil || wal.Exist(cfg.WALDir()) {
		return nil
	}
	return detach(cfg.BackendPath(), 0)
}

const asideSuffix = ".old"

// moveAside renames a log, so that it is removed as a whole or not at all even if the process is killed.
func moveAside(dir string) error {
	if err := os.Rename(dir, dir+asideSuffix); err != nil {
		return fmt.Errorf("move the log aside: %w", err)
	}
	return syncDir(filepath.Dir(dir))
}

// removeLeftovers removes logs that were moved aside, unfinished copies of the database, and Raft's snapshots without a log.
func removeLeftovers(cfg config.ServerConfig) error {
	failed := errors.Join(os.RemoveAll(cfg.WALDir()+asideSuffix), os.RemoveAll(changeLogDir(cfg)+asideSuffix), removeIfThere(cfg.BackendPath()+defragSuffix))
	defragmented, err := filepath.Glob(cfg.BackendPath() + ".tmp.*") // those of etcd's server
	failed = errors.Join(failed, err)
	for _, copied := range defragmented {
		failed = errors.Join(failed, os.Remove(copied))
	}
	if wal.Exist(cfg.WALDir()) {
		return failed
	}
	snapshots, err := filepath.Glob(filepath.Join(cfg.SnapDir(), "*.snap"))
	failed = errors.Join(failed, err)
	for _, snapshot := range snapshots {
		failed = errors.Join(failed, os.Remove(snapshot))
	}
	return failed
}
