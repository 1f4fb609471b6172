package etcd

import (
	"sync"

	"go.etcd.io/etcd/server/v3/storage/backend"
)

// swapBackend is a backend that can be replaced by another with the same content while it is in use.
type swapBackend struct {
	mu      sync.RWMutex // held for reading while current is used
	current backend.Backend
	batch   swapBatchTx
	read    swapReadTx
}

var _ backend.Backend = (*swapBackend)(nil)

func newSwapBackend(b backend.Backend) *swapBackend {
	s := &swapBackend{current: b}
	s.batch.b, s.read.b = s, s
	return s
}

// swap replaces the current backend and returns the old one, which may still be read.
func (s *swapBackend) swap(b backend.Backend) (old backend.Backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, s.current = s.current, b
	return old
}

// use returns the current backend, which is not replaced until done is called.
func (s *swapBackend) use() (b backend.Backend, done func()) {
	s.mu.RLock()
	return s.current, s.mu.RUnlock
}

func (s *swapBackend) ReadTx() backend.ReadTx   { return &s.read }
func (s *swapBackend) BatchTx() backend.BatchTx { return &s.batch }

// ConcurrentReadTx returns a transaction of the current backend, which it keeps reading when the backend is replaced.
func (s *swapBackend) ConcurrentReadTx() backend.ReadTx {
	b, done := s.use()
	defer done()
	return b.ConcurrentReadTx()
}

// Snapshot returns a snapshot of the current backend, which it keeps reading when the backend is replaced.
func (s *swapBackend) Snapshot() backend.Snapshot {
	b, done := s.use()
	defer done()
	return b.Snapshot()
}

func (s *swapBackend) Hash(ignores func(bucketName, keyName []byte) bool) (uint32, error) {
	b, done := s.use()
	defer done()
	return b.Hash(ignores)
}

func (s *swapBackend) Size() int64 {
	b, done := s.use()
	defer done()
	return b.Size()
}

func (s *swapBackend) SizeInUse() int64 {
	b, done := s.use()
	defer done()
	return b.SizeInUse()
}

func (s *swapBackend) OpenReadTxN() int64 {
	b, done := s.use()
	defer done()
	return b.OpenReadTxN()
}

// Defrag blocks all transactions; singleMember.defragment is used instead.
func (s *swapBackend) Defrag() error {
	b, done := s.use()
	defer done()
	return b.Defrag()
}

func (s *swapBackend) ForceCommit() {
	b, done := s.use()
	defer done()
	b.ForceCommit()
}

func (s *swapBackend) Close() error { return s.current.Close() }

// SetTxPostLockInsideApplyHook sets the hook of the current backend.
func (s *swapBackend) SetTxPostLockInsideApplyHook(hook func()) {
	b, done := s.use()
	defer done()
	b.SetTxPostLockInsideApplyHook(hook)
}

// swapBatchTx is the write transaction of the backend that is current when it is locked.
type swapBatchTx struct {
	b    *swapBackend
	held backend.BatchTx // the locked transaction; nil while unlocked
}

func (t *swapBatchTx) lock(lock func(backend.BatchTx)) {
	t.b.mu.RLock()
	tx := t.b.current.BatchTx()
	lock(tx)
	t.held = tx
}

func (t *swapBatchTx) Lock()             { t.lock(backend.BatchTx.Lock) }
func (t *swapBatchTx) LockInsideApply()  { t.lock(backend.BatchTx.LockInsideApply) }
func (t *swapBatchTx) LockOutsideApply() { t.lock(backend.BatchTx.LockOutsideApply) }

func (t *swapBatchTx) Unlock() {
	tx := t.held
	t.held = nil
	tx.Unlock()
	t.b.mu.RUnlock()
}

func (t *swapBatchTx) Commit() { t.b.ForceCommit() }

func (t *swapBatchTx) CommitAndStop() {
	b, done := t.b.use()
	defer done()
	b.BatchTx().CommitAndStop()
}

func (t *swapBatchTx) UnsafeCreateBucket(bucket backend.Bucket) { t.held.UnsafeCreateBucket(bucket) }
func (t *swapBatchTx) UnsafeDeleteBucket(bucket backend.Bucket) { t.held.UnsafeDeleteBucket(bucket) }
func (t *swapBatchTx) UnsafePut(bucket backend.Bucket, key, value []byte) {
	t.held.UnsafePut(bucket, key, value)
}
func (t *swapBatchTx) UnsafeSeqPut(bucket backend.Bucket, key, value []byte) {
	t.held.UnsafeSeqPut(bucket, key, value)
}
func (t *swapBatchTx) UnsafeDelete(bucket backend.Bucket, key []byte) {
	t.held.UnsafeDelete(bucket, key)
}
func (t *swapBatchTx) UnsafeRange(bucket backend.Bucket, key, end []byte, limit int64) (keys, values [][]byte) {
	return t.held.UnsafeRange(bucket, key, end, limit)
}
func (t *swapBatchTx) UnsafeForEach(bucket backend.Bucket, visit func(k, v []byte) error) error {
	return t.held.UnsafeForEach(bucket, visit)
}

// swapReadTx is the shared read transaction of the backend that is current when it is locked.
type swapReadTx struct{ b *swapBackend }

func (t *swapReadTx) RLock() {
	t.b.mu.RLock()
	t.b.current.ReadTx().RLock()
}

func (t *swapReadTx) RUnlock() {
	t.b.current.ReadTx().RUnlock()
	t.b.mu.RUnlock()
}

func (t *swapReadTx) UnsafeRange(bucket backend.Bucket, key, end []byte, limit int64) (keys, values [][]byte) {
	return t.b.current.ReadTx().UnsafeRange(bucket, key, end, limit)
}

func (t *swapReadTx) UnsafeForEach(bucket backend.Bucket, visit func(k, v []byte) error) error {
	return t.b.current.ReadTx().UnsafeForEach(bucket, visit)
}
