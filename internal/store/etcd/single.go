package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-semver/semver"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/config"
	servererrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"

	"skiff/internal/store"
)

const (
	// maxBatch and maxBatchBytes bound what is written to the log at once.
	maxBatch      = 256
	maxBatchBytes = 8 << 20
	// maxLogFiles is the number of log files above which the database is committed early.
	maxLogFiles = 3
	// writeTimeout is how long a caller waits for its write, as in etcd's server.
	writeTimeout = 7 * time.Second
	// minLease is the shortest TTL of a lease, in seconds.
	minLease = 1
)

// singleMember is etcd's database with a write-ahead log and no server: the only member of a cluster needs no agreement, so
// that a change is committed as soon as it is in the log. One goroutine takes the queued changes, writes
// them to the log together, applies them to the database in that order, and answers the callers.
//
// The database commits the applied changes every 100 ms, together with the number of the last one; at
// start the changes after it are replayed from the log.
type singleMember struct {
	log     *changeLog
	path    string          // the path of the database
	backend backend.Backend // the same as swapper
	swapper *swapBackend
	hooks   *consistentIndexHooks // the hooks of the current backend
	kv      mvcc.WatchableKV
	lessor  *leaseKeys
	logger  *zap.Logger
	term    uint64

	mmapBytes uint64 // size of the address space for the database

	applying uint64        // number of the change that is being applied; used only by the goroutine that applies changes
	applied  uint64        // number of the last change in the database, guarded by the lock of its transaction
	saved    atomic.Uint64 // number of the last change that is certainly in the file of the database

	compacting chan struct{} // a mutex that can be awaited with a context: held while a compaction is requested, and while the database is copied
	lastSwap   atomic.Int64  // how long writes waited for the last swap, in nanoseconds

	queue    chan *request
	stopping chan struct{} // closed to end run
	running  sync.WaitGroup
	ended    chan struct{} // closed when run has ended
}

// request is a queued change, or a function that must not run while a change is applied.
type request struct {
	change *change      // nil if do is set
	do     func() error // called between two changes
	answer chan answer  // of capacity 1
}

type answer struct {
	result writeResult
	err    error
}

// openSingle opens the database and returns when all changes in the log have been applied.
func openSingle(ctx context.Context, cfg config.ServerConfig) (_ *singleMember, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.SnapDir(), 0o700); err != nil {
		return nil, err
	}
	l := &singleMember{logger: cfg.Logger, path: cfg.BackendPath(), mmapBytes: mmapBytes(cfg.QuotaBackendBytes), compacting: make(chan struct{}, 1), queue: make(chan *request, maxBatch), stopping: make(chan struct{}), ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if err := createDatabase(cfg.BackendPath()); err != nil {
		return nil, fmt.Errorf("create the database: %w", err)
	}
	if err := l.openDatabase(cfg); err != nil {
		return nil, err
	}
	var missing []numberedChange
	if l.log, missing, err = openLog(cfg.Logger, changeLogDir(cfg), l.saved.Load(), l.term); err != nil {
		return nil, err
	}
	for _, dir := range []string{cfg.SnapDir(), cfg.MemberDir(), cfg.DataDir} {
		if err := syncDir(dir); err != nil {
			return nil, err
		}
	}
	if err := l.replay(ctx, missing); err != nil {
		return nil, withAdvice(err, changeLogDir(cfg), l.applying)
	}
	l.lessor.Promote(0)
	l.running.Go(l.expire)
	go l.run()
	return l, nil
}

// replay applies changes from the log that the database does not hold. An error that is not one of refusedBefore means that the
// database would differ from what was acknowledged.
func (l *singleMember) replay(ctx context.Context, missing []numberedChange) error {
	for _, n := range missing {
		err := ctx.Err()
		if err == nil {
			if _, err = l.apply(n); err == nil || refusedBefore(err) {
				continue
			}
			err = fmt.Errorf("apply change %d from the log: %w", n.number, err)
		}
		// The commit of the next Close must not say that the database holds this change.
		tx := l.backend.BatchTx()
		tx.LockOutsideApply()
		l.applying, l.applied = n.number-1, n.number-1
		tx.Unlock()
		return err
	}
	return nil
}

// refusedBefore reports whether an error is one with which a change was refused when it was first applied, and is refused again when it is replayed from
// the log. A guard that does not hold is not an error.
func refusedBefore(err error) bool {
	return errors.Is(err, lease.ErrLeaseNotFound) || // the lease had expired
		errors.Is(err, lease.ErrLeaseExists) || // newLeaseID returned an ID that was taken
		errors.Is(err, lease.ErrLeaseTTLTooLarge)
}

func changeLogDir(cfg config.ServerConfig) string { return filepath.Join(cfg.MemberDir(), "log") }

// createDatabase creates an empty database if there is none. It is made under another name and renamed: bolt neither opens nor replaces one that a
// full disk has left half written.
func createDatabase(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	draft := path + ".new"
	defer os.Remove(draft)
	if err := os.Remove(draft); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	db, err := bolt.Open(draft, 0o600, nil)
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	return os.Rename(draft, path)
}

// openDatabase opens the database, its lessor, and its index of keys.
func (l *singleMember) openDatabase(cfg config.ServerConfig) error {
	l.hooks = &consistentIndexHooks{l: l}
	l.hooks.active.Store(true)
	opened, err := l.openBackend(l.path, l.hooks)
	if err != nil {
		return err
	}
	l.swapper = newSwapBackend(opened)
	l.backend = l.swapper
	tx := l.backend.BatchTx()
	schema.CreateMetaBucket(tx)
	tx.LockOutsideApply()
	l.applied, l.term = schema.UnsafeReadConsistentIndex(tx)
	if schema.UnsafeReadStorageVersion(tx) == nil {
		schema.UnsafeSetStorageVersion(tx, clusterVersion{}.Version()) // for etcd's tools, which may read a snapshot
	}
	tx.Unlock()
	l.applying, l.term = l.applied, max(l.term, 1)
	l.saved.Store(l.applied)
	l.backend.SetTxPostLockInsideApplyHook(l.setApplied)
	schema.NewMembershipBackend(cfg.Logger, l.backend).MustCreateBackendBuckets()
	l.lessor = newLeaseKeys(lease.NewLessor(cfg.Logger, l.backend, clusterVersion{}, lease.LessorConfig{MinLeaseTTL: minLease}))
	l.kv = mvcc.New(cfg.Logger, l.backend, l.lessor, mvcc.StoreConfig{})
	return nil
}

// openBackend opens a file of etcd's database.
func (l *singleMember) openBackend(path string, hooks backend.Hooks) (b backend.Backend, err error) {
	defer func() { // etcd panics if a file cannot be opened or is not a database
		if p := recover(); p != nil {
			err = fmt.Errorf("open the database: %v", p)
		}
	}()
	options := backend.DefaultBackendConfig(l.logger)
	options.Path, options.MmapSize, options.Hooks = path, l.mmapBytes, hooks
	return backend.New(options), nil
}

// mmapBytes returns a size larger than the database will ever be: remapping it would block readers.
func mmapBytes(quota int64) uint64 { return uint64(quota + quota/10) }

// setApplied is the hook that etcd calls when a change begins to be written to the database.
func (l *singleMember) setApplied() { l.applied = l.applying }

// clusterVersion implements the cluster version that the lessor asks for.
type clusterVersion struct{}

func (clusterVersion) Version() *semver.Version { return semver.New(version.Version) }

// consistentIndexHooks write the number of the last applied change, etcd's consistent index, with each commit of the database.
type consistentIndexHooks struct {
	l      *singleMember
	active atomic.Bool // whether the database is the current one, and not a copy of it
}

// OnPreCommitUnsafe implements backend.Hooks.
func (s *consistentIndexHooks) OnPreCommitUnsafe(tx backend.UnsafeReadWriter) {
	if !s.active.Load() {
		return
	}
	before, _ := schema.UnsafeReadConsistentIndex(tx)
	s.l.setSaved(before) // the commit that wrote this number has finished
	schema.UnsafeUpdateConsistentIndex(tx, s.l.applied, s.l.term)
}

// setSaved records that the file of the database holds the changes up to a number.
func (l *singleMember) setSaved(number uint64) {
	for {
		saved := l.saved.Load()
		if number <= saved || l.saved.CompareAndSwap(saved, number) {
			return
		}
	}
}

func (l *singleMember) write(ctx context.Context, c *change) (writeResult, error) {
	if c.size() > MaxRequestBytes {
		return writeResult{}, servererrors.ErrRequestTooLarge
	}
	return l.await(ctx, &request{change: c})
}

func (l *singleMember) grant(ctx context.Context, seconds int64) (int64, error) {
	c := &change{kind: kindGrant, lease: newLeaseID(), seconds: seconds}
	_, err := l.await(ctx, &request{change: c})
	return c.lease, err
}

// compact compacts the database. It is not logged, because the database makes it durable at once.
func (l *singleMember) compact(ctx context.Context, revision int64) error {
	select {
	case l.compacting <- struct{}{}:
		defer func() { <-l.compacting }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return l.betweenChanges(ctx, func() error {
		_, err := l.kv.Compact(traceutil.TODO(), revision)
		return err
	})
}

// healthy waits for its turn in the queue, which does not come while a write to disk hangs.
func (l *singleMember) healthy(ctx context.Context) error {
	return l.betweenChanges(ctx, func() error { return nil })
}

// betweenChanges calls do between two changes and waits for it.
func (l *singleMember) betweenChanges(ctx context.Context, do func() error) error {
	_, err := l.await(ctx, &request{do: do})
	return err
}

// await queues a request and waits for its answer. If the caller stops waiting for a queued request, because the disk hangs or the context
// has ended, the outcome is unknown.
func (l *singleMember) await(ctx context.Context, r *request) (writeResult, error) {
	r.answer = make(chan answer, 1)
	timer := time.NewTimer(writeTimeout)
	defer timer.Stop()
	select {
	case l.queue <- r:
	case <-l.stopping:
		return writeResult{}, store.ErrClosed
	case <-timer.C:
		return writeResult{}, fmt.Errorf("%w: its log has too much to write", store.ErrUnavailable)
	case <-ctx.Done():
		return writeResult{}, ctx.Err()
	}
	select {
	case a := <-r.answer:
		return a.result, a.err
	case <-l.ended:
		select {
		case a := <-r.answer:
			return a.result, a.err
		default:
			return writeResult{}, store.ErrClosed // the request was queued after run had ended
		}
	case <-timer.C:
		return writeResult{}, servererrors.ErrTimeout
	case <-ctx.Done():
		return writeResult{}, ctx.Err()
	}
}

// run is the only goroutine that writes to the log and applies its changes.
func (l *singleMember) run() {
	defer close(l.ended)
	batch := make([]*request, 0, maxBatch)
	for {
		select {
		case first := <-l.queue:
			batch = l.collectBatch(append(batch[:0], first))
		case <-l.stopping:
			return
		}
		l.commit(batch)
		clear(batch)
	}
}

// collectBatch adds the queued requests, and those about to be queued, to a batch: writes that share a sync of the disk cost less.
func (l *singleMember) collectBatch(batch []*request) []*request {
	runtime.Gosched()
	for bytes := batch[0].change.size(); len(batch) < maxBatch && bytes < maxBatchBytes; {
		select {
		case r := <-l.queue:
			batch = append(batch, r)
			bytes += r.change.size()
		default:
			return batch
		}
	}
	return batch
}

// commit writes a batch to the log and applies it.
func (l *singleMember) commit(batch []*request) {
	changes := make([]*change, 0, len(batch))
	for _, r := range batch {
		if r.change != nil {
			changes = append(changes, r.change)
		}
	}
	number, err := l.log.append(changes)
	if err != nil {
		// What is on disk now is unknown, and a retry would not change that: as in etcd, a failure ends the
		// process. The next one begins with what is there.
		l.logger.Fatal("failed to write to the log", zap.Error(err))
	}
	for _, r := range batch {
		if r.change == nil {
			r.answer <- answer{err: r.do()}
			continue
		}
		result, err := l.apply(numberedChange{number: number, change: r.change})
		r.answer <- answer{result, err}
		number++
	}
	if l.log.mayTrim() {
		if err := l.trim(); err != nil {
			l.logger.Warn("failed to trim the log", zap.Error(err))
		}
	}
}

// trim removes the log files whose changes the database holds. If much was written since the last commit of the database, it commits first.
func (l *singleMember) trim() error {
	left, err := l.log.trim(l.saved.Load())
	if err != nil || left <= maxLogFiles {
		return err
	}
	tx := l.backend.BatchTx()
	tx.LockOutsideApply()
	applied := l.applied
	tx.Unlock()
	l.backend.ForceCommit()
	l.setSaved(applied)
	_, err = l.log.trim(applied)
	return err
}

// apply applies a change. Its result depends only on the changes before it, so that replaying the log gives
// the same results.
func (l *singleMember) apply(n numberedChange) (writeResult, error) {
	l.applying = n.number
	c := n.change
	switch c.kind {
	case kindGrant:
		_, err := l.lessor.Grant(lease.LeaseID(c.lease), c.seconds)
		return writeResult{}, err
	case kindRevoke:
		return writeResult{}, l.lessor.Revoke(lease.LeaseID(c.lease))
	}
	if c.lease != 0 && l.lessor.Lookup(lease.LeaseID(c.lease)) == nil {
		return writeResult{}, lease.ErrLeaseNotFound
	}
	tx := l.kv.Write(traceutil.TODO())
	defer tx.End()
	if c.ifRevision != store.AnyRevision {
		found, err := tx.Range(context.Background(), c.key, nil, mvcc.RangeOptions{})
		if err != nil {
			return writeResult{}, err
		}
		if len(found.KVs) == 0 {
			if c.ifRevision != 0 {
				return writeResult{}, nil
			}
		} else if current := found.KVs[0]; current.ModRevision != c.ifRevision {
			kv := kvOf(current)
			return writeResult{current: &kv}, nil
		}
	}
	if c.kind == kindDelete {
		if n, revision := tx.DeleteRange(c.key, nil); n > 0 {
			return writeResult{revision: revision}, nil
		}
		return writeResult{}, nil
	}
	l.lessor.writing = c.key
	return writeResult{revision: tx.Put(c.key, c.value, lease.LeaseID(c.lease))}, nil
}

// expire revokes expired leases, which deletes their keys.
func (l *singleMember) expire() {
	for {
		select {
		case expired := <-l.lessor.ExpiredLeasesC():
			for _, one := range expired {
				c := &change{kind: kindRevoke, lease: int64(one.ID)}
				if _, err := l.await(context.Background(), &request{change: c}); err != nil && !errors.Is(err, lease.ErrLeaseNotFound) && !errors.Is(err, store.ErrClosed) {
					l.logger.Warn("failed to revoke lease", zap.Error(err)) // the lessor reports the lease again
				}
			}
		case <-l.stopping:
			return
		}
	}
}

// stop ends the goroutines and closes the database, which holds all changes afterwards.
func (l *singleMember) stop() error {
	close(l.stopping)
	<-l.ended
	l.running.Wait()
	return l.close()
}

// close closes the parts that have been opened.
func (l *singleMember) close() error {
	if l.lessor != nil {
		l.lessor.Stop()
	}
	var errs []error
	if l.kv != nil {
		errs = append(errs, l.kv.Close())
	}
	if l.backend != nil {
		errs = append(errs, l.backend.Close())
	}
	if l.log != nil {
		errs = append(errs, l.log.close())
	}
	return errors.Join(errs...)
}
