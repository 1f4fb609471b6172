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

// etcd keeps two things in variables of the process, so two of ours go with them.
var (
	// starting is held while a server starts: etcd tells only of the Raft of the server that was made last.
	starting sync.Mutex
	// shrinkWAL makes the files of the write-ahead log smaller than etcd's 64 MiB: they are allocated ahead, and all
	// of them are read at start.
	shrinkWAL = sync.OnceFunc(func() { wal.SegmentSizeBytes = walSegmentBytes })
)

// start makes a server and returns when it is ready.
func start(ctx context.Context, cfg config.ServerConfig, log *logCore) (*etcdserver.EtcdServer, error) {
	finish, err := beginFirstStart(cfg)
	if err != nil {
		return nil, err
	}
	starting.Lock()
	defer starting.Unlock()
	shrinkWAL()
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

// beginFirstStart prepares the directory, and undoes a first start that was not finished. finish must be called when
// the server is ready, and before anything is written that must not be undone.
func beginFirstStart(cfg config.ServerConfig) (finish func() error, err error) {
	marker := filepath.Join(cfg.DataDir, markerName)
	unfinished, err := os.ReadFile(marker)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	// Anything else was cut short itself: then the server had not been started.
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
		// If the power fails the file must not come back: what is acknowledged from now on would be taken for
		// nothing.
		return errors.Join(os.Remove(marker), syncDir(cfg.DataDir))
	}
	return finish, syncDir(cfg.DataDir)
}

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
