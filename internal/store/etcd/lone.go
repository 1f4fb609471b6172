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
	// maxBatch and maxBatchBytes bound how much is written to the log at once.
	maxBatch      = 256
	maxBatchBytes = 8 << 20
	// maxLogFiles is how many files the log has when the database is made to commit early.
	maxLogFiles = 3
	// writeTimeout is how long a caller waits for its write; etcd's server waits as long.
	writeTimeout = 7 * time.Second
	// minLease is the shortest life of a lease, in seconds.
	minLease = 1
)

// lone is etcd's database with a log before it and no server: a member that is alone need not agree with anybody, so
// that a change is decided as soon as it is in the log. One goroutine takes whatever changes are waiting, writes
// them to the log together, applies them to the database in that order, and answers.
//
// The database commits what was applied every 100 ms, together with the number of the last change that it holds; at
// start the rest is applied from the log again.
type lone struct {
	log     *changeLog
	path    string          // of the database
	backend backend.Backend // swapper
	swapper *swapBackend
	hooks   *savesNumber // of the current backend
	kv      mvcc.WatchableKV
	lessor  *leaseKeys
	logger  *zap.Logger
	term    uint64

	mmapBytes uint64 // of address space for the database

	applying uint64        // number of the change that is being applied; only who applies them looks at it
	applied  uint64        // number of the last change in the database, guarded by the lock of its transaction
	saved    atomic.Uint64 // number of the last change that is certainly in the file of the database

	compacting chan struct{} // a mutex one can wait for with a context: held while a compaction is asked for, and while the database is copied
	lastSwap   atomic.Int64  // how long writes waited for the last swap, in nanoseconds

	queue    chan *request
	stopping chan struct{} // closed to end run
	running  sync.WaitGroup
	ended    chan struct{} // closed when run has ended
}

// request is a change on its way, or something else that must not happen while one is applied.
type request struct {
	change *change      // nil if nothing is to be logged
	do     func() error // instead of a change
	answer chan answer  // of capacity 1
}

type answer struct {
	outcome outcome
	err     error
}

// openLone returns when all that is in the log has been applied.
func openLone(ctx context.Context, cfg config.ServerConfig) (_ *lone, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.SnapDir(), 0o700); err != nil {
		return nil, err
	}
	l := &lone{logger: cfg.Logger, path: cfg.BackendPath(), mmapBytes: mmapBytes(cfg.QuotaBackendBytes), compacting: make(chan struct{}, 1), queue: make(chan *request, maxBatch), stopping: make(chan struct{}), ended: make(chan struct{})}
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
	var missing []numbered
	if l.log, missing, err = openLog(cfg.Logger, loneLogDir(cfg), l.saved.Load(), l.term); err != nil {
		return nil, err
	}
	for _, dir := range []string{cfg.SnapDir(), cfg.MemberDir(), cfg.DataDir} {
		if err := syncDir(dir); err != nil {
			return nil, err
		}
	}
	if err := l.replay(ctx, missing); err != nil {
		return nil, withAdvice(err, loneLogDir(cfg), l.applying)
	}
	l.lessor.Promote(0)
	l.running.Go(l.expire)
	go l.run()
	return l, nil
}

// replay applies changes from the log that the database does not hold. An error that is not one of refusedAgain means that the
// database would differ from what was acknowledged.
func (l *lone) replay(ctx context.Context, missing []numbered) error {
	for _, n := range missing {
		err := ctx.Err()
		if err == nil {
			if _, err = l.apply(n); err == nil || refusedAgain(err) {
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

// refusedAgain is true of errors with which a change was refused when it was first applied, and is again when it is applied from
// the log. A guard that does not hold is not an error.
func refusedAgain(err error) bool {
	return errors.Is(err, lease.ErrLeaseNotFound) || // the lease had expired
		errors.Is(err, lease.ErrLeaseExists) || // newLeaseID returned an ID that was taken
		errors.Is(err, lease.ErrLeaseTTLTooLarge)
}

func loneLogDir(cfg config.ServerConfig) string { return filepath.Join(cfg.MemberDir(), "log") }

// createDatabase makes an empty database if there is none. It is made aside and renamed: bolt neither opens nor replaces one that a
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

// openDatabase opens the database, its leases, and its index of keys.
func (l *lone) openDatabase(cfg config.ServerConfig) error {
	l.hooks = &savesNumber{l: l}
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
		schema.UnsafeSetStorageVersion(tx, thisVersion{}.Version()) // for etcd's tools, to which a snapshot may be given
	}
	tx.Unlock()
	l.applying, l.term = l.applied, max(l.term, 1)
	l.saved.Store(l.applied)
	l.backend.SetTxPostLockInsideApplyHook(l.noteApplied)
	schema.NewMembershipBackend(cfg.Logger, l.backend).MustCreateBackendBuckets()
	l.lessor = newLeaseKeys(lease.NewLessor(cfg.Logger, l.backend, thisVersion{}, lease.LessorConfig{MinLeaseTTL: minLease}))
	l.kv = mvcc.New(cfg.Logger, l.backend, l.lessor, mvcc.StoreConfig{})
	return nil
}

// openBackend opens a file of etcd's database.
func (l *lone) openBackend(path string, hooks backend.Hooks) (b backend.Backend, err error) {
	defer func() { // how etcd says that a file cannot be opened, or is none of its own
		if p := recover(); p != nil {
			err = fmt.Errorf("open the database: %v", p)
		}
	}()
	options := backend.DefaultBackendConfig(l.logger)
	options.Path, options.MmapSize, options.Hooks = path, l.mmapBytes, hooks
	return backend.New(options), nil
}

// mmapBytes is larger than the database will ever be: mapping it anew would stop readers.
func mmapBytes(quota int64) uint64 { return uint64(quota + quota/10) }

// noteApplied is called when a change begins to be written to the database.
func (l *lone) noteApplied() { l.applied = l.applying }

// thisVersion is the version of a cluster with one member.
type thisVersion struct{}

func (thisVersion) Version() *semver.Version { return semver.New(version.Version) }

// savesNumber has each commit of the database include the number of the last change in it.
type savesNumber struct {
	l      *lone
	active atomic.Bool // whether the database is the current one, and not a copy of it
}

// OnPreCommitUnsafe implements backend.Hooks.
func (s *savesNumber) OnPreCommitUnsafe(tx backend.UnsafeReadWriter) {
	if !s.active.Load() {
		return
	}
	before, _ := schema.UnsafeReadConsistentIndex(tx)
	s.l.noteSaved(before) // the commit that wrote it is over
	schema.UnsafeUpdateConsistentIndex(tx, s.l.applied, s.l.term)
}

// noteSaved says that the file of the database holds the changes up to a number.
func (l *lone) noteSaved(number uint64) {
	for {
		saved := l.saved.Load()
		if number <= saved || l.saved.CompareAndSwap(saved, number) {
			return
		}
	}
}

func (l *lone) write(ctx context.Context, c *change) (outcome, error) {
	if c.size() > MaxRequestBytes {
		return outcome{}, servererrors.ErrRequestTooLarge
	}
	return l.await(ctx, &request{change: c})
}

func (l *lone) grant(ctx context.Context, seconds int64) (int64, error) {
	c := &change{kind: granted, lease: newLeaseID(), seconds: seconds}
	_, err := l.await(ctx, &request{change: c})
	return c.lease, err
}

// compact is not logged: the database makes it durable at once.
func (l *lone) compact(ctx context.Context, revision int64) error {
	select {
	case l.compacting <- struct{}{}:
		defer func() { <-l.compacting }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return l.between(ctx, func() error {
		_, err := l.kv.Compact(traceutil.TODO(), revision)
		return err
	})
}

// healthy waits for its turn, which does not come while a write to disk hangs.
func (l *lone) healthy(ctx context.Context) error {
	return l.between(ctx, func() error { return nil })
}

// between does something between two changes.
func (l *lone) between(ctx context.Context, do func() error) error {
	_, err := l.await(ctx, &request{do: do})
	return err
}

// await hands a request over and waits for its answer. Once it is handed over nobody can say what becomes of it: only a hanging disk, or the
// end of the context, makes the caller stop waiting.
func (l *lone) await(ctx context.Context, r *request) (outcome, error) {
	r.answer = make(chan answer, 1)
	timer := time.NewTimer(writeTimeout)
	defer timer.Stop()
	select {
	case l.queue <- r:
	case <-l.stopping:
		return outcome{}, store.ErrClosed
	case <-timer.C:
		return outcome{}, fmt.Errorf("%w: its log has too much to write", store.ErrUnavailable)
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	}
	select {
	case a := <-r.answer:
		return a.outcome, a.err
	case <-l.ended:
		select {
		case a := <-r.answer:
			return a.outcome, a.err
		default:
			return outcome{}, store.ErrClosed // it came too late to be looked at
		}
	case <-timer.C:
		return outcome{}, servererrors.ErrTimeout
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	}
}

// run is the only one to write to the log, and to apply what is in it.
func (l *lone) run() {
	defer close(l.ended)
	batch := make([]*request, 0, maxBatch)
	for {
		select {
		case first := <-l.queue:
			batch = l.gather(append(batch[:0], first))
		case <-l.stopping:
			return
		}
		l.commit(batch)
		clear(batch)
	}
}

// gather adds what else is waiting, and what is about to: writes that share a sync of the disk cost less.
func (l *lone) gather(batch []*request) []*request {
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

// commit makes a batch durable and applies it.
func (l *lone) commit(batch []*request) {
	changes := make([]*change, 0, len(batch))
	for _, r := range batch {
		if r.change != nil {
			changes = append(changes, r.change)
		}
	}
	number, err := l.log.append(changes)
	if err != nil {
		// What is on disk now is not known, and less so what would be after the next try: as etcd does, this ends the
		// process. The next one begins with what is there.
		l.logger.Fatal("failed to write to the log", zap.Error(err))
	}
	for _, r := range batch {
		if r.change == nil {
			r.answer <- answer{err: r.do()}
			continue
		}
		result, err := l.apply(numbered{number: number, change: r.change})
		r.answer <- answer{result, err}
		number++
	}
	if l.log.mayTrim() {
		if err := l.trim(); err != nil {
			l.logger.Warn("failed to remove what is no longer needed of the log", zap.Error(err))
		}
	}
}

// trim removes what is no longer needed of the log. Where much is written between two commits of the database, it does not wait for the next.
func (l *lone) trim() error {
	left, err := l.log.trim(l.saved.Load())
	if err != nil || left <= maxLogFiles {
		return err
	}
	tx := l.backend.BatchTx()
	tx.LockOutsideApply()
	applied := l.applied
	tx.Unlock()
	l.backend.ForceCommit()
	l.noteSaved(applied)
	_, err = l.log.trim(applied)
	return err
}

// apply makes a change. What becomes of it depends on nothing but the changes before it: it is decided again, the same
// way, when it is read from the log.
func (l *lone) apply(n numbered) (outcome, error) {
	l.applying = n.number
	c := n.change
	switch c.kind {
	case granted:
		_, err := l.lessor.Grant(lease.LeaseID(c.lease), c.seconds)
		return outcome{}, err
	case revoked:
		return outcome{}, l.lessor.Revoke(lease.LeaseID(c.lease))
	}
	if c.lease != 0 && l.lessor.Lookup(lease.LeaseID(c.lease)) == nil {
		return outcome{}, lease.ErrLeaseNotFound
	}
	tx := l.kv.Write(traceutil.TODO())
	defer tx.End()
	if c.ifRevision != store.AnyRevision {
		found, err := tx.Range(context.Background(), c.key, nil, mvcc.RangeOptions{})
		if err != nil {
			return outcome{}, err
		}
		if len(found.KVs) == 0 {
			if c.ifRevision != 0 {
				return outcome{}, nil
			}
		} else if current := found.KVs[0]; current.ModRevision != c.ifRevision {
			kv := kvOf(current)
			return outcome{current: &kv}, nil
		}
	}
	if c.kind == deleted {
		if n, revision := tx.DeleteRange(c.key, nil); n > 0 {
			return outcome{revision: revision}, nil
		}
		return outcome{}, nil
	}
	l.lessor.writing = c.key
	return outcome{revision: tx.Put(c.key, c.value, lease.LeaseID(c.lease))}, nil
}

// expire has the keys of leases that are over deleted.
func (l *lone) expire() {
	for {
		select {
		case over := <-l.lessor.ExpiredLeasesC():
			for _, one := range over {
				c := &change{kind: revoked, lease: int64(one.ID)}
				if _, err := l.await(context.Background(), &request{change: c}); err != nil && !errors.Is(err, lease.ErrLeaseNotFound) && !errors.Is(err, store.ErrClosed) {
					l.logger.Warn("failed to revoke lease", zap.Error(err)) // it is reported again
				}
			}
		case <-l.stopping:
			return
		}
	}
}

// stop ends everything. The database holds all changes afterwards.
func (l *lone) stop() error {
	close(l.stopping)
	<-l.ended
	l.running.Wait()
	return l.close()
}

// close closes what has been opened.
func (l *lone) close() error {
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
