package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"skiff/internal/store"
)

const (
	keyOverhead   = 256 // bytes that a key takes beside itself and its value, roughly
	leaseOverhead = 64
	// compactionWait bounds how long Defragment waits for a compaction to finish.
	compactionWait = 30 * time.Second
)

// reserve refuses a change that would make the database larger than its quota, or that its disk has no room for. Otherwise it counts the change
// until done is called.
func (e *embedded) reserve(c *change) (done func(), err error) {
	cost := c.cost()
	if cost == 0 {
		return func() {}, nil
	}
	if err := e.room.check(e.backend.Size()); err != nil {
		return nil, err
	}
	underWay := e.underWay.Add(cost)
	if e.backend.Size()+e.uncommitted.Add(cost) > e.quota {
		// Perhaps only because what was replaced is counted too: the size of the file tells, once all is in it.
		e.backend.ForceCommit()
		e.uncommitted.Store(underWay)
		if e.backend.Size()+underWay > e.quota {
			e.underWay.Add(-cost)
			return nil, store.ErrFull
		}
	}
	return func() { e.underWay.Add(-cost) }, nil
}

// cost is how much a change may add. Deletions are free, so that a full database can be emptied.
func (c *change) cost() int64 {
	switch c.kind {
	case granted:
		return leaseOverhead
	case written:
		return keyOverhead + int64(len(c.key)+len(c.value))
	}
	return 0
}

// defragment writes the database anew, without the pages that a compaction has freed.
func (e *embedded) defragment(ctx context.Context) error {
	e.gate.RLock()
	defer e.gate.RUnlock()
	if e.closed {
		return store.ErrClosed
	}
	e.awaitCompaction(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.member.defragment()
}

// awaitCompaction returns when the latest compaction has removed what it forgot.
func (e *embedded) awaitCompaction(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, compactionWait)
	defer cancel()
	for !compactionFinished(e.backend) && ctx.Err() == nil {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func compactionFinished(b backend.Backend) bool {
	tx := b.ConcurrentReadTx()
	tx.RLock()
	defer tx.RUnlock()
	scheduled, _ := mvcc.UnsafeReadScheduledCompact(tx)
	finished, _ := mvcc.UnsafeReadFinishedCompact(tx)
	return finished >= scheduled
}
