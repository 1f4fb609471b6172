package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"skiff/internal/store"
)

// Store implements store.Store with etcd.
//
// One thing differs from the contract: keys that expire together share a revision, because one lease
// holds them. Their events come in one batch, so a watch resumed after a batch has still seen everything.
type Store struct {
	engine engine
	leases *leases

	ctx    context.Context // ends when the store is closed
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	watches map[*watch]struct{}
	running sync.WaitGroup // the watches' goroutines
	ended   chan struct{}  // closed when Close has finished
}

// engine is what differs between the embedded server and an external cluster. Its errors are etcd's own.
type engine interface {
	// read returns the keys in [key, end), or key alone if end is nil, as of a revision; 0 means now, linearizably.
	// counted requests the number of all keys in the range, which takes time in proportion to it.
	read(ctx context.Context, key, end []byte, revision, limit int64, counted bool) (readResult, error)
	// write applies a change of a key.
	write(ctx context.Context, c *change) (writeResult, error)
	grant(ctx context.Context, seconds int64) (leaseID int64, err error)
	compact(ctx context.Context, revision int64) error
	revision(ctx context.Context) (int64, error)
	// runWatch adds the changes after p.seen to p and delivers them, until ctx ends or the watch breaks.
	runWatch(ctx context.Context, p *watchBuffer) error
	snapshot(ctx context.Context, w io.Writer) error
	defragment(ctx context.Context) error
	healthy(ctx context.Context) error
	size(ctx context.Context) (allocated, inUse int64, err error)
	close() error
}

type readResult struct {
	kvs      []*mvccpb.KeyValue
	count    int64
	revision int64 // the store's revision at the time of reading
}

var _ store.Store = (*Store)(nil)

func newStore(e engine) *Store {
	s := &Store{engine: e, leases: newLeases(e.grant), watches: map[*watch]struct{}{}, ended: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.KV, int64, error) {
	if err := store.ValidateKey(key); err != nil {
		return store.KV{}, 0, fmt.Errorf("get: %w", err)
	}
	if err := s.checkOpen(ctx); err != nil {
		return store.KV{}, 0, err
	}
	result, err := s.engine.read(ctx, []byte(key), nil, 0, 0, true)
	if err != nil {
		return store.KV{}, 0, s.readError(ctx, err)
	}
	if len(result.kvs) == 0 {
		return store.KV{}, result.revision, store.ErrNotFound
	}
	return kvOf(result.kvs[0]), result.revision, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string, opts store.ListOptions) (store.ListResult, error) {
	if err := opts.Validate(prefix); err != nil {
		return store.ListResult{}, fmt.Errorf("list %q: %w", prefix, err)
	}
	if err := s.checkOpen(ctx); err != nil {
		return store.ListResult{}, err
	}
	from, end := prefixRange(prefix)
	if opts.From != "" {
		from = []byte(opts.From)
	}
	limit := opts.Limit
	uncounted := opts.Uncounted && limit > 0
	if uncounted {
		limit++ // one more shows whether there are more
	}
	read, err := s.engine.read(ctx, from, end, opts.Revision, limit, !uncounted)
	if err != nil {
		return store.ListResult{}, s.readError(ctx, err)
	}
	result := store.ListResult{Count: read.count, Revision: read.revision}
	if opts.Revision != 0 {
		result.Revision = opts.Revision
	}
	if uncounted && int64(len(read.kvs)) == limit {
		read.kvs, result.Count = read.kvs[:opts.Limit], max(result.Count, limit)
	}
	if len(read.kvs) > 0 {
		result.KVs = make([]store.KV, len(read.kvs))
	}
	for i, kv := range read.kvs {
		result.KVs[i] = kvOf(kv)
	}
	result.More = int64(len(result.KVs)) < result.Count
	return result, nil
}

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte, opts store.PutOptions) (int64, error) {
	if err := store.ValidateKey(key); err != nil {
		return 0, fmt.Errorf("put: %w", err)
	}
	if err := opts.Validate(); err != nil {
		return 0, fmt.Errorf("put %q: %w", key, err)
	}
	if err := s.checkOpen(ctx); err != nil {
		return 0, err
	}
	result, err := s.putWithLease(ctx, &change{kind: kindPut, key: []byte(key), value: value, ifRevision: opts.IfRevision, class: opts.Class}, opts.TTL)
	switch {
	case isNoSpace(err):
		return 0, s.noSpaceError(ctx, key, opts.IfRevision)
	case err != nil:
		return 0, s.writeError(ctx, "put", key, err)
	case result.revision == 0:
		return 0, &store.ConflictError{Key: key, Current: result.current}
	}
	return result.revision, nil
}

// putWithLease attaches a lease for the TTL. The lease may have expired since it was taken (the clock
// jumped, the process was stopped for long); then the write was refused and is retried with another.
func (s *Store) putWithLease(ctx context.Context, put *change, ttl time.Duration) (writeResult, error) {
	const tries = 3
	for try := 1; ; try++ {
		if ttl != 0 {
			id, err := s.leases.take(ctx, ttl)
			if err != nil {
				return writeResult{}, notWritten(ctx, err)
			}
			put.lease = id
		}
		result, err := s.engine.write(ctx, put)
		if !isLeaseNotFound(err) || put.lease == 0 || try == tries {
			return result, err
		}
		s.leases.forget(put.lease)
	}
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string, ifRevision int64) (int64, error) {
	if err := store.ValidateKey(key); err != nil {
		return 0, fmt.Errorf("delete: %w", err)
	}
	if err := store.ValidateGuard(ifRevision); err != nil {
		return 0, fmt.Errorf("delete %q: %w", key, err)
	}
	if err := s.checkOpen(ctx); err != nil {
		return 0, err
	}
	result, err := s.engine.write(ctx, &change{kind: kindDelete, key: []byte(key), ifRevision: ifRevision})
	switch {
	case err != nil:
		return 0, s.writeError(ctx, "delete", key, err)
	case result.revision != 0:
		return result.revision, nil
	case result.current != nil:
		return 0, &store.ConflictError{Key: key, Current: result.current}
	}
	return 0, store.ErrNotFound
}

// Revision implements store.Store.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	if err := s.checkOpen(ctx); err != nil {
		return 0, err
	}
	revision, err := s.engine.revision(ctx)
	if err != nil {
		return 0, s.readError(ctx, err)
	}
	return revision, nil
}

// Compact implements store.Store. Compacted versions are removed from the disk a little later.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	if err := s.checkOpen(ctx); err != nil {
		return err
	}
	err := s.readError(ctx, s.engine.compact(ctx, revision))
	if errors.Is(err, store.ErrCompacted) {
		return nil
	}
	return err
}

// Snapshot implements store.Store. It writes etcd's own format, which Restore and etcdutl read.
func (s *Store) Snapshot(ctx context.Context, w io.Writer) error {
	if err := s.checkOpen(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	if err := s.engine.snapshot(ctx, w); err != nil {
		if s.ctx.Err() != nil {
			return store.ErrClosed
		}
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// Defragment returns the space that compaction freed to the file system. etcd's server stops all calls meanwhile; a single member does not.
func (s *Store) Defragment(ctx context.Context) error {
	if err := s.checkOpen(ctx); err != nil {
		return err
	}
	if err := s.engine.defragment(ctx); err != nil {
		return fmt.Errorf("defragment: %w", s.readError(ctx, err))
	}
	return nil
}

// Healthy returns nil if the store answers consistent reads and nothing says that its data is damaged.
func (s *Store) Healthy(ctx context.Context) error {
	if err := s.checkOpen(ctx); err != nil {
		return err
	}
	return s.readError(ctx, s.engine.healthy(ctx))
}

// Size returns how many bytes the database takes on disk and how many of them hold data.
func (s *Store) Size(ctx context.Context) (allocated, inUse int64, err error) {
	if err := s.checkOpen(ctx); err != nil {
		return 0, 0, err
	}
	allocated, inUse, err = s.engine.size(ctx)
	return allocated, inUse, s.readError(ctx, err)
}

// Quota returns how many bytes an embedded database may hold, and 0 for an external one, whose quota is unknown.
func (s *Store) Quota() int64 {
	if e, ok := s.engine.(*embedded); ok {
		return e.quota
	}
	return 0
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.ended
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	defer close(s.ended)
	s.cancel()
	s.running.Wait()
	return s.engine.close()
}

// checkOpen returns an error if the store is closed or ctx has ended.
// checkOpen returns an error if the store is closed or ctx has ended.
func (s *Store) checkOpen(ctx context.Context) error {
	if s.ctx.Err() != nil {
		return store.ErrClosed
	}
	return ctx.Err()
}

func kvOf(kv *mvccpb.KeyValue) store.KV {
	return store.KV{Key: string(kv.Key), Value: kv.Value, Revision: kv.ModRevision}
}

// prefixRange returns the first key with the prefix and the first after the last; an empty end means no end.
func prefixRange(prefix string) (from, end []byte) {
	if prefix == "" {
		return []byte{0}, []byte{}
	}
	end = []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return []byte(prefix), end[:i+1]
		}
	}
	return []byte(prefix), []byte{}
}
