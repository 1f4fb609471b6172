package etcd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"
)

// bolt never makes its file smaller. A singleMember copies its database to a new file while reads
// and writes go on, and then replaces the old file by the new one between two changes.
const (
	defragSuffix = ".shrinking"
	// copyBytes is how many bytes are copied in one transaction.
	copyBytes = 4 << 20
	// catchUp is how many revisions may be left to copy while writes are blocked.
	catchUp = 200
	// maxRounds bounds how often the copy is brought up to date before the swap.
	maxRounds = 20
	// compactionWait bounds how long a defragmentation waits for a compaction to finish.
	compactionWait = 30 * time.Second
)

// defragment rewrites the database without the pages that a compaction has freed.
func (l *singleMember) defragment(ctx context.Context) error {
	select { // a compaction must not remove revisions while they are copied
	case l.compacting <- struct{}{}:
		defer func() { <-l.compacting }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := awaitCompaction(ctx, l.backend); err != nil {
		return err
	}
	draft := l.path + defragSuffix
	if err := os.Remove(draft); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := checkSpaceFor(filepath.Dir(l.path), l.backend.SizeInUse()); err != nil {
		return err
	}
	c, err := l.copyTo(ctx, draft)
	if err == nil {
		err = l.swapTo(ctx, c)
	}
	if err != nil {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
		return errors.Join(err, removeIfThere(draft))
	}
	return nil
}

// databaseCopy is an unfinished copy of the database.
type databaseCopy struct {
	backend.Backend
	path   string
	hooks  *consistentIndexHooks
	cursor *cursor // the position of the first revision that has not been copied yet
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// checkSpaceFor returns an error if a copy of a database does not fit on the disk with enough space left for everything else.
func checkSpaceFor(dir string, size int64) error {
	if free, known := freeBytes(dir); known && free < size+size/4+reserveAhead+minFreeBytes {
		return fmt.Errorf("%w for a smaller copy of the database: %d bytes are left, and it holds %d", errNoDiskSpace, free, size)
	}
	return nil
}

// copyTo copies the revisions of all keys to a new file, and opens it.
func (l *singleMember) copyTo(ctx context.Context, path string) (*databaseCopy, error) {
	position, err := copyKeys(ctx, l.backend, l.kv.Rev(), path)
	if err != nil {
		return nil, err
	}
	// A failed commit of a backend ends the process: space for what is still to come is reserved in advance.
	if err := reserveFile(path, reserveAhead); err != nil {
		return nil, err
	}
	c := &databaseCopy{path: path, hooks: &consistentIndexHooks{l: l}, cursor: position}
	if c.Backend, err = l.openBackend(path, c.hooks); err != nil {
		return nil, err
	}
	trimResident(path)
	tx := c.BatchTx()
	for range maxRounds {
		copied, newest := 0, l.kv.Rev()
		for done := false; !done; {
			if err := ctx.Err(); err != nil {
				return c, err
			}
			var page revisions
			page, done = c.cursor.next(l.backend, newest)
			tx.LockOutsideApply()
			page.putInto(tx)
			tx.Unlock()
			copied += len(page.keys)
		}
		c.ForceCommit()
		if copied <= catchUp {
			break
		}
	}
	return c, nil
}

// awaitCompaction returns when the latest compaction has removed all compacted revisions.
func awaitCompaction(ctx context.Context, b backend.Backend) error {
	ctx, cancel := context.WithTimeout(ctx, compactionWait)
	defer cancel()
	for !compactionFinished(b) {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait for a compaction: %w", ctx.Err())
		}
	}
	return nil
}

func compactionFinished(b backend.Backend) bool {
	tx := b.ConcurrentReadTx()
	tx.RLock()
	defer tx.RUnlock()
	scheduled, _ := mvcc.UnsafeReadScheduledCompact(tx)
	finished, _ := mvcc.UnsafeReadFinishedCompact(tx)
	return finished >= scheduled
}

// cursor reads the bucket of revisions, which only grows while there is no compaction.
type cursor struct {
	from  []byte // all keys before this one have been copied
	width int64  // number of revisions that the next page covers
}

const (
	minWidth = 256
	maxWidth = 1 << 40
)

func newCursor() *cursor { return &cursor{from: revisionKey(0), width: minWidth} }

func revisionKey(main int64) []byte {
	return mvcc.RevToBytes(mvcc.Revision{Main: main}, mvcc.NewRevBytes())
}

// revisions is a page of keys of the bucket of revisions, with their values.
type revisions struct{ keys, values [][]byte }

// next returns copies of the next revisions up to the newest, and whether there are no more. A limited range would be wrong: it could return revisions
// from a reader's buffer of uncommitted writes before committed ones that precede them.
func (c *cursor) next(b backend.Backend, newest int64) (page revisions, done bool) {
	first := int64(binary.BigEndian.Uint64(c.from))
	if first > newest {
		return revisions{}, true
	}
	end := revisionKey(min(first+c.width, newest+1))
	tx := b.ConcurrentReadTx()
	tx.RLock()
	defer tx.RUnlock()
	keys, values := tx.UnsafeRange(schema.Key, c.from, end, 0)
	switch {
	case len(keys) < minWidth: // most of them have been compacted
		c.width = min(2*c.width, maxWidth)
	case len(keys) > 16*minWidth:
		c.width = max(c.width/4, 1)
	}
	page, whole := cloneSome(keys, values)
	if c.from = end; !whole {
		c.from = append(bytes.Clone(page.keys[len(page.keys)-1]), 0)
	}
	return page, false
}

// rest returns copies of the next revisions in a write transaction, and whether they are the last.
func (c *cursor) rest(tx backend.BatchTx) (page revisions, done bool) {
	keys, values := tx.UnsafeRange(schema.Key, c.from, afterLastRevision, minWidth)
	page, whole := cloneSome(keys, values)
	if n := len(page.keys); n > 0 {
		c.from = append(bytes.Clone(page.keys[n-1]), 0)
	}
	return page, whole && len(keys) < minWidth
}

var afterLastRevision = bytes.Repeat([]byte{0xff}, 20)

// cloneSome copies keys and values, which belong to the transaction that read them, until they take copyBytes.
func cloneSome(keys, values [][]byte) (page revisions, whole bool) {
	size := 0
	for i := range keys {
		if size >= copyBytes {
			return page, false
		}
		page.keys, page.values = append(page.keys, bytes.Clone(keys[i])), append(page.values, bytes.Clone(values[i]))
		size += len(keys[i]) + len(values[i])
	}
	return page, true
}

func (r revisions) putInto(tx backend.UnsafeWriter) {
	for i := range r.keys {
		tx.UnsafeSeqPut(schema.Key, r.keys[i], r.values[i])
	}
}

// copyKeys copies revisions up to the newest to a new database, which is synced at the end. It uses bolt, because a failed write returns an error there and
// ends the process in a backend.
func copyKeys(ctx context.Context, from backend.Backend, newest int64, path string) (_ *cursor, err error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := reserveFile(path, from.SizeInUse()+reserveAhead); err != nil {
		return nil, err
	}
	c := newCursor()
	for done := false; !done; {
		err := db.Update(func(tx *bolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists(schema.Key.Name())
			if err != nil {
				return err
			}
			bucket.FillPercent = 0.9 // keys come in order
			for size := 0; !done && size < copyBytes; {
				if err := ctx.Err(); err != nil {
					return err
				}
				var page revisions
				page, done = c.next(from, newest)
				for i, key := range page.keys {
					if err := bucket.Put(key, page.values[i]); err != nil {
						return err
					}
					size += len(key) + len(page.values[i])
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return c, db.Sync()
}

// reserveFile reserves blocks for a file to grow by some bytes. Where the file system cannot do that, the disk may run out of space.
func reserveFile(path string, more int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	reserveBlocks(f, info.Size()+more)
	return nil
}

// swapTo copies the remaining revisions and replaces the old file by the new one, between two changes.
func (l *singleMember) swapTo(ctx context.Context, c *databaseCopy) error {
	const waiting, begun, abandoned = 0, 1, 2
	var state atomic.Int32
	result := make(chan error, 1)
	err := l.betweenChanges(ctx, func() error {
		if !state.CompareAndSwap(waiting, begun) {
			return nil
		}
		err := l.finishSwap(c)
		result <- err
		return err
	})
	if err != nil && !state.CompareAndSwap(waiting, abandoned) {
		err = <-result // the swap was begun, though betweenChanges did not wait for its end
	}
	return err
}

func (l *singleMember) finishSwap(c *databaseCopy) error {
	began := time.Now()
	if err := l.copyRest(c); err != nil {
		return err
	}
	c.ForceCommit()
	if err := os.Rename(c.path, l.path); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(l.path)); err != nil {
		// The log must not be trimmed to what the new file holds as long as the old file may come back.
		l.logger.Fatal("failed to sync the directory of the database", zap.Error(err))
	}
	c.SetTxPostLockInsideApplyHook(l.setApplied)
	old := l.swapper.swap(c.Backend)
	tx := old.BatchTx()
	tx.LockOutsideApply()
	l.hooks.active.Store(false)
	tx.Unlock()
	c.hooks.active.Store(true)
	l.hooks = c.hooks
	l.lastSwap.Store(int64(time.Since(began)))
	// Closing the old file waits for its readers; its blocks are freed then.
	l.running.Go(func() {
		if err := old.Close(); err != nil {
			l.logger.Warn("failed to close the old file of the database", zap.Error(err))
		}
	})
	return nil
}

// copyRest copies the last revisions and all other buckets, which are small. It blocks writes.
func (l *singleMember) copyRest(c *databaseCopy) error {
	from, to := l.backend.BatchTx(), c.BatchTx()
	from.LockOutsideApply()
	defer from.Unlock()
	to.LockOutsideApply()
	defer to.Unlock()
	for done := false; !done; {
		var page revisions
		page, done = c.cursor.rest(from)
		page.putInto(to)
	}
	for _, bucket := range schema.AllBuckets {
		if bucket.ID() == schema.Key.ID() {
			continue
		}
		to.UnsafeCreateBucket(bucket)
		err := from.UnsafeForEach(bucket, func(k, v []byte) error {
			to.UnsafePut(bucket, bytes.Clone(k), bytes.Clone(v))
			return nil
		})
		if err != nil {
			return fmt.Errorf("copy bucket %s: %w", bucket, err)
		}
	}
	schema.UnsafeUpdateConsistentIndex(to, l.applied, l.term)
	return nil
}
