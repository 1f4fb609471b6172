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

// A data directory holds the database and, beside it, either Raft's log (of etcd's server) or that of a lone member. From
// one to the other leads the database: it is brought up to date from the one log, which is then removed.

// leaveRaft has a directory that etcd's server wrote become a lone member's.
func leaveRaft(ctx context.Context, cfg config.ServerConfig, quota int64, log *logCore) error {
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
	if err := putAside(cfg.WALDir()); err != nil {
		return err
	}
	return removeLeftovers(cfg)
}

// leaveLone has a lone member's directory become one from which etcd's server starts a cluster.
func leaveLone(ctx context.Context, cfg config.ServerConfig) error {
	if err := removeLeftovers(cfg); err != nil {
		return err
	}
	if wal.Exist(loneLogDir(cfg)) {
		l, err := openLone(ctx, cfg)
		if err != nil {
			return err
		}
		if err := l.stop(); err != nil {
			return err
		}
		if err := putAside(loneLogDir(cfg)); err != nil {
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

// putAside has a log disappear as a whole, whenever the process is killed.
func putAside(dir string) error {
	if err := os.Rename(dir, dir+asideSuffix); err != nil {
		return fmt.Errorf("put the log aside: %w", err)
	}
	return syncDir(filepath.Dir(dir))
}

// removeLeftovers removes logs that were put aside, unfinished copies of the database, and Raft's snapshots if their log is gone.
func removeLeftovers(cfg config.ServerConfig) error {
	failed := errors.Join(os.RemoveAll(cfg.WALDir()+asideSuffix), os.RemoveAll(loneLogDir(cfg)+asideSuffix), removeIfThere(cfg.BackendPath()+shrinkSuffix))
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
