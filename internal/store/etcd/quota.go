package etcd

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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

// reserve refuses a request that would make the database larger than its quota, or that its disk has no room for. Otherwise it counts the request
// until done is called.
func (e *embedded) reserve(request any) (done func(), err error) {
	cost := cost(request)
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

// cost is how much a request may add. Deletions are free, so that a full database can be emptied.
func cost(request any) int64 {
	switch r := request.(type) {
	case *pb.LeaseGrantRequest:
		return leaseOverhead
	case *pb.TxnRequest:
		var sum int64
		for _, op := range r.Success {
			if put := op.GetRequestPut(); put != nil {
				sum += keyOverhead + int64(len(put.Key)+len(put.Value))
			}
		}
		return sum
	}
	return 0
}

// disarm ends etcd's own alarm about space if there is space again: the quota may have been raised, or the database
// defragmented. Left alone, it would refuse writes for ever.
func (e *embedded) disarm(ctx context.Context) error {
	if e.backend.Size() > e.quota {
		return nil
	}
	for _, alarm := range e.server.Alarms() {
		if alarm.Alarm != pb.AlarmType_NOSPACE {
			continue
		}
		request := &pb.AlarmRequest{MemberID: alarm.MemberID, Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE}
		if _, err := e.server.Alarm(ctx, request); err != nil {
			return fmt.Errorf("disarm the alarm about space: %w", err)
		}
	}
	return nil
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
	if err := e.server.Defragment(); err != nil {
		return err
	}
	return e.disarm(ctx)
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
