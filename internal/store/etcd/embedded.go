package etcd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	serverstorage "go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"

	"skiff/internal/store"
)

const (
	// MaxRequestBytes bounds one write. The API takes objects of 3 MB; etcd's default would be 1.5 MiB.
	MaxRequestBytes = 4 << 20
	// DefaultQuotaBytes is etcd's own default, MaxQuotaBytes the most that etcd recommends.
	DefaultQuotaBytes = serverstorage.DefaultQuotaBytes
	MaxQuotaBytes     = serverstorage.MaxQuotaBytes
)

// EmbedOptions configure the etcd member inside this process.
type EmbedOptions struct {
	// Dir is the data directory, created if missing. One process at a time may use it.
	Dir string
	// QuotaBytes bounds the size of the database file; beyond, writes fail with store.ErrFull. DefaultQuotaBytes if 0.
	QuotaBytes int64
	// Listen opens the member to etcd clients such as etcdctl: "unix:PATH" or "https://LOOPBACK:PORT" (port 0 takes a
	// free one). Empty means no socket at all. On TCP, clients must present a certificate signed by CAFile.
	Listen                    string
	CAFile, CertFile, KeyFile string
	// Log receives etcd's warnings; slog.Default if nil.
	Log *slog.Logger

	defrag defragPolicy // defragAbove and defragEvery if zero
}

// Embed opens the store in a data directory, and returns when it is ready.
func Embed(ctx context.Context, opts EmbedOptions) (*Store, error) {
	e, err := embed(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("open etcd in %s: %w", opts.Dir, err)
	}
	return newStore(e), nil
}

// ListenAddress returns the address at which etcd clients reach an embedded member, in the form that etcdctl's --endpoints takes; empty
// if it does not listen.
func (s *Store) ListenAddress() string {
	if e, ok := s.engine.(*embedded); ok && e.clients != nil {
		return e.clients.address
	}
	return ""
}

// member makes changes durable and applies them to the database. Its errors are etcd's own.
type member interface {
	write(ctx context.Context, c *change) (writeResult, error)
	grant(ctx context.Context, seconds int64) (leaseID int64, err error)
	compact(ctx context.Context, revision int64) error
	healthy(ctx context.Context) error
	// defragment rewrites the database without the pages that a compaction has freed.
	defragment(ctx context.Context) error
	stop() error
}

// embedded is the engine of an etcd member in this process.
type embedded struct {
	member    member
	kv        mvcc.WatchableKV
	backend   backend.Backend
	quota     int64
	diskSpace diskSpace
	lock      *dirLock
	log       *logCore
	clients   *clientListener // nil unless Listen is set

	current atomic.Int64     // the store's revision
	tracker mvcc.WatchStream // updates current

	inflightBytes    atomic.Int64 // size of the writes not yet applied
	uncommittedBytes atomic.Int64 // size of the writes that may not be part of the file's size yet

	// closeMu is held for reading while the database is read directly, and for writing to close it: a read of a
	// closed database touches memory that is no longer mapped.
	closeMu sync.RWMutex
	closed  bool

	stopDefrag    context.CancelFunc
	defragRunning sync.WaitGroup
}

func embed(ctx context.Context, opts EmbedOptions) (_ *embedded, err error) {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.QuotaBytes == 0 {
		opts.QuotaBytes = DefaultQuotaBytes
	}
	if opts.Dir == "" {
		return nil, errors.New("no data directory given")
	}
	if opts.QuotaBytes < 0 {
		return nil, fmt.Errorf("quota of %d bytes is negative", opts.QuotaBytes)
	}
	if opts.QuotaBytes > MaxQuotaBytes {
		opts.Log.Warn("etcd's quota is larger than recommended; start and snapshots will be slow", "bytes", opts.QuotaBytes, "recommended", MaxQuotaBytes)
	}
	if err := makePrivate(opts.Dir); err != nil {
		return nil, err
	}
	lock, err := lockDir(opts.Dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.release()
		}
	}()
	e := &embedded{quota: opts.QuotaBytes, diskSpace: diskSpace{dir: opts.Dir}, lock: lock, log: newLogCore(opts.Log)}
	if err := e.open(ctx, opts); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.log.mute()
			err = errors.Join(err, e.member.stop())
		}
	}()
	if err := e.trackRevision(); err != nil {
		return nil, err
	}
	trimResident(filepath.Join(opts.Dir, "member", "snap", "db"))
	if opts.Listen != "" {
		if e.clients, err = listen(e.member.(*server).EtcdServer, opts); err != nil {
			return nil, err
		}
	}
	if opts.defrag == (defragPolicy{}) {
		opts.defrag = defragPolicy{above: defragAbove, every: defragEvery}
	}
	defragContext, stop := context.WithCancel(context.Background())
	e.stopDefrag = stop
	e.defragRunning.Go(func() { e.autoDefragment(defragContext, opts.defrag) })
	return e, nil
}

// open starts the member: etcd's server if it serves etcd clients, and otherwise a singleMember.
func (e *embedded) open(ctx context.Context, opts EmbedOptions) error {
	cfg := serverConfig(opts, zap.New(e.log))
	if opts.Listen != "" {
		if err := convertToServer(ctx, cfg); err != nil {
			return err
		}
		s, err := openServer(ctx, cfg, opts.QuotaBytes, e.log)
		if err != nil {
			return err
		}
		e.member, e.kv, e.backend = s, s.KV(), s.Backend()
		return nil
	}
	if err := convertToSingle(ctx, cfg, opts.QuotaBytes, e.log); err != nil {
		return err
	}
	l, err := openSingle(ctx, cfg)
	if err != nil {
		return err
	}
	e.member, e.kv, e.backend = l, l.kv, l.backend
	return nil
}

// makePrivate creates the directory if it is missing and lets only its owner access it: it contains every Secret.
func makePrivate(dir string) error {
	if err := makeDurable(dir); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}

// makeDurable creates a directory and its missing parents, and syncs the parents of the new ones.
func makeDurable(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDurable(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(parent)
}

func (e *embedded) read(ctx context.Context, key, end []byte, revision, limit int64, counted bool) (readResult, error) {
	e.closeMu.RLock()
	defer e.closeMu.RUnlock()
	for {
		if e.closed {
			return readResult{}, store.ErrClosed
		}
		current := e.current.Load()
		result, err := e.kv.Range(ctx, key, end, mvcc.RangeOptions{Rev: revision, Limit: limit, WithTotalCount: counted})
		if err == nil && revision == 0 && result.Rev < current {
			runtime.Gosched() // a change that watches have reported is being applied at this moment
			continue
		}
		if err == nil {
			return readResult{kvs: result.KVs, count: int64(result.Count), revision: result.Rev}, nil
		}
		if !isFuture(err) || revision > e.current.Load() {
			return readResult{}, err
		}
		runtime.Gosched() // the revision is being applied at this moment (trackRevision)
	}
}

func (e *embedded) write(ctx context.Context, c *change) (writeResult, error) {
	done, err := e.reserve(c)
	if err != nil {
		return writeResult{}, err
	}
	defer done()
	// A write that has begun is not cancelled with its caller: its outcome would be unknown. The member has its own time limit.
	return e.member.write(context.WithoutCancel(ctx), c)
}

func (e *embedded) grant(ctx context.Context, seconds int64) (int64, error) {
	done, err := e.reserve(&change{kind: kindGrant})
	if err != nil {
		return 0, err
	}
	defer done()
	return e.member.grant(ctx, seconds)
}

func (e *embedded) compact(ctx context.Context, revision int64) error {
	return e.member.compact(ctx, revision)
}

// revision returns the store's revision without a round of Raft: a write is applied here before it is acknowledged.
func (e *embedded) revision(context.Context) (int64, error) {
	return e.current.Load(), nil
}

// trackRevision keeps e.current at the store's revision: every consistent read of the API needs
// it, and etcd's own method blocks while the database is being committed to disk, tens of milliseconds on a busy one.
//
// etcd calls the filter of a watch for every change as it is applied, in order and before it is acknowledged, just before
// reads see it.
func (e *embedded) trackRevision() error {
	everything, noEnd := prefixRange("")
	e.tracker = e.kv.NewWatchStream()
	_, err := e.tracker.Watch(context.Background(), 0, everything, noEnd, fromNow, func(event *mvccpb.Event) bool {
		e.current.Store(event.Kv.ModRevision)
		return true // filtered out: the stream never sends anything
	})
	if err != nil {
		return err
	}
	// Changes before the watch began are not filtered, and keys may have expired meanwhile.
	for now := e.kv.Rev(); ; {
		seen := e.current.Load()
		if seen >= now || e.current.CompareAndSwap(seen, now) {
			return nil
		}
	}
}

// snapshot writes the database followed by its SHA-256, as `etcdctl snapshot save` does.
func (e *embedded) snapshot(ctx context.Context, w io.Writer) error {
	e.closeMu.RLock()
	defer e.closeMu.RUnlock()
	if e.closed {
		return store.ErrClosed
	}
	snapshot := e.backend.Snapshot()
	defer snapshot.Close()
	sum, out := sha256.New(), &contextWriter{ctx: ctx, w: w}
	if _, err := snapshot.WriteTo(io.MultiWriter(out, sum)); err != nil {
		return cmp.Or(out.err, err) // the database does not wrap the writer's error
	}
	_, err := out.Write(sum.Sum(nil))
	return err
}

// contextWriter is a writer that fails once its context has ended, and keeps its first error.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
	err error
}

func (u *contextWriter) Write(p []byte) (n int, err error) {
	if err = u.ctx.Err(); err == nil {
		n, err = u.w.Write(p)
	}
	u.err = cmp.Or(u.err, err)
	return n, err
}

func (e *embedded) defragment(ctx context.Context) error {
	e.closeMu.RLock()
	defer e.closeMu.RUnlock()
	if e.closed {
		return store.ErrClosed
	}
	return e.member.defragment(ctx)
}

func (e *embedded) healthy(ctx context.Context) error { return e.member.healthy(ctx) }

func (e *embedded) size(context.Context) (allocated, inUse int64, err error) {
	return e.backend.Size(), e.backend.SizeInUse(), nil
}

func (e *embedded) close() error {
	if e.clients != nil {
		e.clients.close()
	}
	e.stopDefrag()
	e.defragRunning.Wait()
	e.closeMu.Lock()
	e.closed = true
	e.closeMu.Unlock()
	e.tracker.Close()
	e.log.mute()
	return errors.Join(e.member.stop(), e.lock.release())
}
