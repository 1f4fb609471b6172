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

// starting is held while a server starts: etcd tells of the Raft of the server that was made last, in one variable of
// the process (raftStatus), and takes the size of its log's files from another.
var starting sync.Mutex

// start makes a server and returns when it is ready.
func start(ctx context.Context, cfg config.ServerConfig, log *logCore) (*etcdserver.EtcdServer, error) {
	finish, err := beginFirstStart(cfg)
	if err != nil {
		return nil, err
	}
	starting.Lock()
	defer starting.Unlock()
	wal.SegmentSizeBytes = walSegmentBytes
	server, err := etcdserver.NewServer(cfg)
	if err != nil {
		return nil, err
	}
	server.Start()
	if err = lead(ctx, server); err == nil {
		err = finish()
	}
	if err != nil {
		log.mute()
		server.Stop()
		return nil, err
	}
	return server, nil
}

// lead makes the server leader without waiting for an election, which it alone would win, and returns when it is
// ready. The message is the one with which a leader hands over to a follower.
func lead(ctx context.Context, server *etcdserver.EtcdServer) error {
	self := uint64(server.MemberID())
	for {
		// Raft must have applied what it has read from disk: while it has not, being asked to lead can make it
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

// raftStatus is what etcd publishes for debugging. Without it, the server is elected after a second or two.
func raftStatus() raft.Status {
	if published, ok := expvar.Get("raft.status").(expvar.Func); ok {
		if status, ok := published.Value().(raft.Status); ok && status.HardState != nil {
			return status
		}
	}
	return raft.Status{BasicStatus: raft.BasicStatus{HardState: &raftpb.HardState{}, Applied: 1}}
}

// A server killed in the first milliseconds of its first life cannot start again: its log exists, but does not say that
// the server is a member. A file in the directory says that the first start is not over, and what it began with.
const (
	markerName     = "first-start"
	markerEmpty    = "began with nothing"
	markerRestored = "began with a restored database"
)

// beginFirstStart prepares the directory. finish must be called when the server is ready.
func beginFirstStart(cfg config.ServerConfig) (finish func() error, err error) {
	marker := filepath.Join(cfg.DataDir, markerName)
	switch content, err := os.ReadFile(marker); {
	case err == nil && string(content) == markerRestored:
		err = errors.Join(os.RemoveAll(cfg.WALDir()), detach(cfg.BackendPath(), 0))
		if err != nil {
			return nil, fmt.Errorf("start over with the restored database: %w", err)
		}
	case err == nil:
		if err := os.RemoveAll(cfg.MemberDir()); err != nil {
			return nil, fmt.Errorf("start over: %w", err)
		}
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
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
	return func() error { return os.Remove(marker) }, nil
}
