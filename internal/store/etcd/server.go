package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/features"
	"go.uber.org/zap"
)

const (
	memberName = "skiff"
	// tick may be slow because the only member elects itself at once (becomeLeader) and sends no heartbeats: idle, 10 ms take
	// 1.4 % of a core, 100 ms 0.35 %, 500 ms 0.2 %. Not slower: a lease lasts at least three ticks.
	tick          = 500 * time.Millisecond
	electionTicks = 2
	// entriesPerSnapshot bounds what is replayed at start: the entries since the last snapshot.
	entriesPerSnapshot = 2000
	// entriesInMemory is how many entries of Raft's log are kept in memory for slow followers, of which there are none.
	entriesInMemory = 100
	walSegmentBytes = 8 << 20
	// quotaSlack is how far etcd's own quota is above ours. When etcd's is exceeded it applies the write,
	// reports failure and refuses all others until somebody disarms an alarm; ours only refuses writes.
	quotaSlack = 64 << 20
)

// server is etcd's own server, whose log is Raft's. It can speak to etcd clients.
type server struct {
	*etcdserver.EtcdServer
	quota int64
	log   *logCore
}

func openServer(ctx context.Context, cfg config.ServerConfig, quota int64, log *logCore) (*server, error) {
	started, err := start(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	s := &server{started, quota, log}
	if err := s.disarm(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func serverConfig(opts EmbedOptions, logger *zap.Logger) config.ServerConfig {
	// The member needs a peer URL to have a name in the cluster, though nothing ever connects to it.
	nowhere := types.URLs{url.URL{Scheme: "http", Host: "127.0.0.1:0"}}
	return config.ServerConfig{
		Name:                memberName,
		DataDir:             opts.Dir,
		PeerURLs:            nowhere,
		InitialPeerURLsMap:  types.URLsMap{memberName: nowhere},
		InitialClusterToken: memberName,
		NewCluster:          true,

		TickMs:                 uint(tick / time.Millisecond),
		ElectionTicks:          electionTicks,
		SnapshotCount:          entriesPerSnapshot,
		SnapshotCatchUpEntries: entriesInMemory,
		MaxSnapFiles:           2,
		MaxWALFiles:            2,

		MaxRequestBytes:      MaxRequestBytes,
		MaxTxnOps:            128,
		MaxConcurrentStreams: math.MaxUint32,
		QuotaBackendBytes:    opts.QuotaBytes + quotaSlack,
		MaxLearners:          membership.DefaultMaxLearners,
		StrictReconfigCheck:  true,
		AuthToken:            "simple",
		BcryptCost:           10, // unused: there are no users
		TokenTTL:             300,
		Metrics:              "basic",

		// Slow disks make each write slow; one warning per second of delay is enough.
		WarningApplyDuration:        time.Second,
		WarningUnaryRequestDuration: time.Second,
		CompactHashCheckTime:        time.Minute,

		Logger:            logger,
		ServerFeatureGate: features.NewDefaultServerFeatureGate(memberName, logger),
	}
}

func (s *server) write(ctx context.Context, c *change) (writeResult, error) {
	response, err := s.Txn(ctx, c.txn())
	if err != nil {
		return writeResult{}, err
	}
	return resultOf(c, response), nil
}

func (s *server) grant(ctx context.Context, seconds int64) (int64, error) {
	response, err := s.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: seconds})
	if err != nil {
		return 0, err
	}
	return response.ID, nil
}

func (s *server) compact(ctx context.Context, revision int64) error {
	_, err := s.Compact(ctx, &pb.CompactionRequest{Revision: revision})
	return err
}

// healthy makes a linearizable read, which Raft answers only while its loop runs: not while a write to disk hangs.
func (s *server) healthy(ctx context.Context) error {
	if err := s.LinearizableReadNotify(ctx); err != nil {
		return err
	}
	for _, alarm := range s.Alarms() {
		if alarm.Alarm == pb.AlarmType_CORRUPT {
			return errors.New("etcd has found its data corrupt: restore a snapshot")
		}
	}
	return nil
}

// defragment blocks all calls while the database is copied. Freeing the blocks of the old file takes
// longer than copying a small database, so the old file is kept open and freed afterwards.
func (s *server) defragment(ctx context.Context) error {
	if err := awaitCompaction(ctx, s.Backend()); err != nil {
		return err
	}
	old, err := os.Open(s.Cfg.BackendPath())
	if err != nil {
		return err
	}
	defer old.Close()
	if err := s.Defragment(); err != nil {
		return err
	}
	if err := syncDir(s.Cfg.SnapDir()); err != nil {
		return err
	}
	return s.disarm(context.WithoutCancel(ctx))
}

// disarm ends etcd's NOSPACE alarm if the database is below its quota again: the quota may have been raised, or the database
// defragmented. An alarm that is not disarmed refuses writes for ever.
func (s *server) disarm(ctx context.Context) error {
	if s.Backend().Size() > s.quota {
		return nil
	}
	for _, alarm := range s.Alarms() {
		if alarm.Alarm != pb.AlarmType_NOSPACE {
			continue
		}
		request := &pb.AlarmRequest{MemberID: alarm.MemberID, Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE}
		if _, err := s.Alarm(ctx, request); err != nil {
			return fmt.Errorf("disarm etcd's NOSPACE alarm: %w", err)
		}
	}
	return nil
}

func (s *server) stop() error {
	s.log.mute()
	s.EtcdServer.Stop()
	return nil
}
