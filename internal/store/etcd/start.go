package etcd

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// These are global because etcd keeps the state they guard in global variables.
var (
	// startMu is held while a server starts: etcd publishes only the Raft status of the server that was made last.
	startMu sync.Mutex
	// setWALSegmentSize makes the files of the write-ahead log smaller than etcd's 64 MiB: they are preallocated, and all
	// of them are read at start.
	setWALSegmentSize = sync.OnceFunc(func() { wal.SegmentSizeBytes = walSegmentBytes })
)

// start starts a server and returns when it is ready.
func start(ctx context.Context, cfg config.ServerConfig, log *logCore) (*etcdserver.EtcdServer, error) {
	finish, err := beginFirstStart(cfg)
	if err != nil {
		return nil, err
	}
	startMu.Lock()
	defer startMu.Unlock()
	setWALSegmentSize()
	server, err := etcdserver.NewServer(cfg)
	if err != nil {
		return nil, err
	}
	server.Start()
	if err = becomeLeader(ctx, server); err == nil {
		err = finish()
	}
	if err != nil {
		log.mute()
		server.Stop()
		return nil, err
	}
	return server, nil
}

// becomeLeader makes the server leader without waiting for the election timeout, and returns when it is
// ready. It sends MsgTimeoutNow, with which a leader transfers leadership to a follower.
func becomeLeader(ctx context.Context, server *etcdserver.EtcdServer) error {
	self := uint64(server.MemberID())
	for {
		// Raft must have applied what it has read from disk: before that, the message can make it
		// look for entries that the server, being ahead, has dropped; it panics then.
		if status := raftStatus(); status.Applied == status.GetCommit() && server.Lead() == raft.None {
			err := server.Process(ctx, &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), From: &self, To: &self})
			if err != nil {
				return fmt.Errorf("become leader: %w", err)
			}
		}
		select {
		case <-server.ReadyNotify():
			return nil
		case <-server.StopNotify():
			return errors.New("etcd stopped while starting; its log says why")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Microsecond):
		}
	}
}

// raftStatus returns the status that etcd publishes for debugging. If there is none, it returns one with which becomeLeader waits for an
// election, which takes a second or two.
func raftStatus() raft.Status {
	if published, ok := expvar.Get("raft.status").(expvar.Func); ok {
		if status, ok := published.Value().(raft.Status); ok && status.HardState != nil {
			return status
		}
	}
	return raft.Status{BasicStatus: raft.BasicStatus{HardState: &raftpb.HardState{}, Applied: 1}}
}

// A server killed in the first milliseconds of its first start cannot start again: its log exists, but does not say that
// the server is a member. A marker file in the directory says that the first start is not finished, and what it began with.
const (
	markerName     = "first-start"
	markerEmpty    = "began with nothing"
	markerRestored = "began with a restored database"
)

// beginFirstStart prepares the directory, and undoes an unfinished first start. The caller must call finish when
// the server is ready, and before anything is written that must not be undone.
func beginFirstStart(cfg config.ServerConfig) (finish func() error, err error) {
	marker := filepath.Join(cfg.DataDir, markerName)
	unfinished, err := os.ReadFile(marker)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	// Any other content was cut short: then the server had not been started.
	switch string(unfinished) {
	case markerEmpty:
		err = os.RemoveAll(cfg.MemberDir())
	case markerRestored:
		err = errors.Join(os.RemoveAll(cfg.WALDir()), detach(cfg.BackendPath(), 0))
	default:
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("start over after an unfinished first start: %w", err)
	}
	if wal.Exist(cfg.WALDir()) {
		return func() error { return nil }, nil
	}
	content := markerEmpty
	if _, err := os.Stat(cfg.BackendPath()); err == nil {
		content = markerRestored
	}
	if err := os.WriteFile(marker, []byte(content), 0o600); err != nil {
		return nil, err
	}
	finish = func() error {
		// The marker must not come back after a power failure: it would discard what is acknowledged from now on.
		return errors.Join(os.Remove(marker), syncDir(cfg.DataDir))
	}
	return finish, syncDir(cfg.DataDir)
}

// syncDir makes the entries of a directory durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
