package memory

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/google/btree"
	"k8s.io/utils/clock"

	"skiff/internal/store"
)

// MaxRequestBytes bounds key and value of one write together, as it does in the etcd engine.
const MaxRequestBytes = 4 << 20

// Options are the options of a store in memory.
type Options struct {
	Clock clock.Clock // the clock by which keys expire; the real one if nil
}

// Store keeps everything in memory. It implements store.Store.
type Store struct {
	clock clock.Clock

	mu        sync.RWMutex
	closed    bool
	revision  int64
	compacted int64 // the compacted revision: reads and watches from before it fail
	keys      *btree.BTreeG[*entry]
	log       []store.Event // one per revision, the last one at `revision`; starts at `compacted` or later
	watches   map[*watch]struct{}
	expiries  expiryQueue

	expiryStarted bool
	expiryKick    chan struct{} // receives when the earliest expiry changed
	done          chan struct{} // closed by Close
	running       sync.WaitGroup
}

// entry is a key with every version that history still needs, oldest first.
type entry struct {
	key      string
	versions []version
	expiry   *expiry // nil if the key is permanent
}

type version struct {
	revision int64
	value    []byte
	deleted  bool
}

var _ store.Store = (*Store)(nil)

// New returns an empty store at revision 1, where etcd starts too.
func New(opts Options) *Store {
	return newStore(opts, 1)
}

func newStore(opts Options, revision int64) *Store {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	return &Store{
		clock:      opts.Clock,
		revision:   revision,
		keys:       btree.NewG(32, func(a, b *entry) bool { return a.key < b.key }),
		watches:    map[*watch]struct{}{},
		expiryKick: make(chan struct{}, 1),
		done:       make(chan struct{}),
	}
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.KV, int64, error) {
	if err := store.ValidateKey(key); err != nil {
		return store.KV{}, 0, fmt.Errorf("get: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return store.KV{}, 0, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return store.KV{}, 0, store.ErrClosed
	}
	if kv := s.current(key); kv != nil {
		return *kv, s.revision, nil
	}
	return store.KV{}, s.revision, store.ErrNotFound
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string, opts store.ListOptions) (store.ListResult, error) {
	if err := opts.Validate(prefix); err != nil {
		return store.ListResult{}, fmt.Errorf("list %q: %w", prefix, err)
	}
	if err := ctx.Err(); err != nil {
		return store.ListResult{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	at := opts.Revision
	switch {
	case s.closed:
		return store.ListResult{}, store.ErrClosed
	case at == 0:
		at = s.revision
	case at > s.revision:
		return store.ListResult{}, store.ErrFutureRevision
	case at < s.compacted:
		return store.ListResult{}, store.ErrCompacted
	}
	result := store.ListResult{Revision: at}
	s.keys.AscendGreaterOrEqual(&entry{key: max(prefix, opts.From)}, func(e *entry) bool {
		if !strings.HasPrefix(e.key, prefix) {
			return false
		}
		v := e.at(at)
		if v == nil || v.deleted {
			return true
		}
		result.Count++
		if opts.Limit == 0 || int64(len(result.KVs)) < opts.Limit {
			result.KVs = append(result.KVs, store.KV{Key: e.key, Value: v.value, Revision: v.revision})
		}
		return true
	})
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
	if len(key)+len(value) > MaxRequestBytes {
		return 0, store.ErrTooLarge
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkOpen(ctx); err != nil {
		return 0, err
	}
	current := s.current(key)
	if err := guard(key, current, opts.IfRevision); err != nil {
		return 0, err
	}
	e := s.append(store.Event{Key: key, Value: value, Created: current == nil})
	s.expireAfter(e, opts.TTL)
	return s.revision, nil
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string, ifRevision int64) (int64, error) {
	if err := store.ValidateKey(key); err != nil {
		return 0, fmt.Errorf("delete: %w", err)
	}
	if err := store.ValidateGuard(ifRevision); err != nil {
		return 0, fmt.Errorf("delete %q: %w", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkOpen(ctx); err != nil {
		return 0, err
	}
	current := s.current(key)
	if current == nil {
		return 0, store.ErrNotFound
	}
	if err := guard(key, current, ifRevision); err != nil {
		return 0, err
	}
	s.remove(key)
	return s.revision, nil
}

// Revision implements store.Store.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return 0, store.ErrClosed
	}
	return s.revision, nil
}

// Compact implements store.Store.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkOpen(ctx); err != nil {
		return err
	}
	if revision > s.revision {
		return store.ErrFutureRevision
	}
	if revision <= s.compacted {
		return nil
	}
	s.compacted = revision
	// The change at the compacted revision itself stays: a watch may still begin there.
	kept := sort.Search(len(s.log), func(i int) bool { return s.log[i].Revision >= revision })
	for _, event := range s.log[:min(kept+1, len(s.log))] {
		if event.Revision <= revision {
			s.prune(event.Key)
		}
	}
	s.log = slices.Clone(s.log[kept:])
	for w := range s.watches {
		w.wakeUp() // a watch that is behind the compacted revision ends
	}
	return nil
}

// Close implements store.Store. It waits until the store's goroutines have ended.
func (s *Store) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

// checkOpen returns an error if the store is closed or ctx has ended. The caller holds the lock.
func (s *Store) checkOpen(ctx context.Context) error {
	if s.closed {
		return store.ErrClosed
	}
	return ctx.Err()
}

// current returns the newest version of key, or nil if there is none.
func (s *Store) current(key string) *store.KV {
	e, ok := s.keys.Get(&entry{key: key})
	if !ok {
		return nil
	}
	v := e.versions[len(e.versions)-1]
	if v.deleted {
		return nil
	}
	return &store.KV{Key: key, Value: v.value, Revision: v.revision}
}

// guard returns a ConflictError unless the key's current revision is ifRevision.
func guard(key string, current *store.KV, ifRevision int64) error {
	var revision int64
	if current != nil {
		revision = current.Revision
	}
	if ifRevision == store.AnyRevision || ifRevision == revision {
		return nil
	}
	return &store.ConflictError{Key: key, Current: current}
}

// append records an event as the next revision and wakes the watches it matches.
func (s *Store) append(event store.Event) *entry {
	s.revision++
	event.Revision = s.revision
	e, ok := s.keys.Get(&entry{key: event.Key})
	if !ok {
		e = &entry{key: event.Key}
		s.keys.ReplaceOrInsert(e)
	}
	e.versions = append(e.versions, version{revision: event.Revision, value: event.Value, deleted: event.Deleted})
	s.log = append(s.log, event)
	for w := range s.watches {
		if strings.HasPrefix(event.Key, w.prefix) {
			w.wakeUp()
		}
	}
	return e
}

func (s *Store) remove(key string) {
	e := s.append(store.Event{Key: key, Deleted: true})
	s.expireAfter(e, time.Duration(0))
}

// prune drops the versions of key that were replaced or deleted by the compacted revision.
func (s *Store) prune(key string) {
	e, ok := s.keys.Get(&entry{key: key})
	if !ok {
		return
	}
	newer := sort.Search(len(e.versions), func(i int) bool { return e.versions[i].revision > s.compacted })
	keep := newer
	if newer > 0 && !e.versions[newer-1].deleted {
		keep = newer - 1
	}
	e.versions = slices.Clone(e.versions[keep:])
	if len(e.versions) == 0 {
		s.keys.Delete(e)
	}
}

// at returns the version of the key as of a revision, nil if it had none.
func (e *entry) at(revision int64) *version {
	newer := sort.Search(len(e.versions), func(i int) bool { return e.versions[i].revision > revision })
	if newer == 0 {
		return nil
	}
	return &e.versions[newer-1]
}
