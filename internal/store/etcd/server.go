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
	// A member alone elects itself at once (lead) and sends no heartbeats, so its tick may be slow: idle, 10 ms take
	// 1.4 % of a core, 100 ms 0.35 %, 500 ms 0.2 %. Not slower: a lease lasts at least three ticks.
	tick          = 500 * time.Millisecond
	electionTicks = 2
	// What was written since the last snapshot is read again at start; so are the files of the write-ahead log.
	entriesPerSnapshot = 2000
	// Of Raft's log this much is kept in memory. They would be for slow followers; here are none.
	entriesInMemory = 100
	walSegmentBytes = 8 << 20
	// quotaSlack is how far etcd's own limit lies above ours. Where etcd's is reached it applies the write,
	// reports failure and refuses all others until someone disarms an alarm; ours only refuses.
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
	// The member needs an address to have a name in the cluster, though nobody ever connects to it.
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
		BcryptCost:           10, // nobody has a password
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

func (s *server) write(ctx context.Context, c *change) (outcome, error) {
	response, err := s.Txn(ctx, c.txn())
	if err != nil {
		return outcome{}, err
	}
	return outcomeOf(c, response), nil
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

// healthy asks Raft, which answers only if its loop runs: not while a write to disk hangs.
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

// defragment stops everything for as long as it takes to copy what the database holds. To free the blocks of the old file takes
// longer than to copy a small one, so it is kept open and freed afterwards.
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

// disarm ends etcd's own alarm about space if there is space again: the quota may have been raised, or the database
// defragmented. Left alone, it would refuse writes for ever.
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
			return fmt.Errorf("disarm the alarm about space: %w", err)
		}
	}
	return nil
}

func (s *server) stop() error {
	s.log.mute()
	s.EtcdServer.Stop()
	return nil
}
