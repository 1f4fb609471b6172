package etcd

import (
	"bytes"
	"context"
	"fmt"
	"runtime"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"skiff/internal/store"
)

// fromNow is the start revision with which a watch of etcd begins with the next change.
const fromNow int64 = 0

// replayStep is how many revisions of history are read at a time.
const replayStep = 1000

// runWatch watches all keys and not only the prefix, so that the watch sees every revision and its progress is always known.
//
// Past changes are read from the database here. etcd would do it too, but up to 100 ms later, and all of it at
// once.
func (e *embedded) runWatch(ctx context.Context, p *watchBuffer) error {
	if p.seen+1 < e.kv.FirstRev() {
		return store.ErrCompacted
	}
	stream := e.kv.NewWatchStream()
	defer stream.Close()
	everything, noEnd := prefixRange("")
	if _, err := stream.Watch(ctx, 0, everything, noEnd, fromNow); err != nil {
		return err
	}
	// The revision is read after the stream has begun, so there is no gap; changes that come twice are skipped below. e.current would be
	// wrong: its change may not have reached the database yet.
	if err := e.replay(ctx, p, e.kv.Rev()); err != nil {
		return err
	}
	return deliver(ctx, p, stream.Chan(), func(response mvcc.WatchResponse) error {
		if response.CompactRevision != 0 {
			return store.ErrCompacted
		}
		mvcc.ReportEventReceived(len(response.Events))
		seen := p.seen // several events may share a revision
		for _, event := range response.Events {
			if revision := event.Kv.ModRevision; revision > seen {
				e.awaitCurrent(revision)
				p.add(eventOf(event.Kv, event.Type == mvccpb.Event_DELETE, revision))
				p.advance(revision)
			}
		}
		return nil
	}, nil)
}

// awaitCurrent waits until e.current has reached a revision that etcd is reporting to its watches at this moment, so that reads that begin after a batch was delivered see its changes.
func (e *embedded) awaitCurrent(revision int64) {
	for e.current.Load() < revision {
		runtime.Gosched()
	}
}

// replay adds the changes from p.seen to last. The last of them are left for deliver, so that a slow
// reader does not block the stream.
func (e *embedded) replay(ctx context.Context, p *watchBuffer, last int64) error {
	for p.seen < last {
		if err := p.flush(ctx); err != nil {
			return err
		}
		reached, err := e.history(p, p.seen+1, min(p.seen+replayStep, last))
		if err != nil {
			return err
		}
		p.advance(reached)
	}
	return nil
}

// history adds the changes of a range of revisions, which are the keys under which etcd stores them, and returns the revision
// reached, which is before the end if the values are large.
func (e *embedded) history(p *watchBuffer, from, to int64) (reached int64, err error) {
	tx := e.backend.ConcurrentReadTx()
	tx.RLock()
	defer tx.RUnlock()
	first := mvcc.RevToBytes(mvcc.Revision{Main: from}, mvcc.NewRevBytes())
	end := mvcc.RevToBytes(mvcc.Revision{Main: to + 1}, mvcc.NewRevBytes())
	revisions, values := tx.UnsafeRange(schema.Key, first, end, 0)
	// Checked after reading: a compaction raises FirstRev before it removes anything.
	if from < e.kv.FirstRev() {
		return 0, store.ErrCompacted
	}
	var last []byte
	for i, value := range values {
		// The range returns what is on disk, then what was buffered when the transaction began: just after a commit
		// both hold the same changes, and they come twice.
		if bytes.Compare(revisions[i], last) <= 0 {
			continue
		}
		last = revisions[i]
		revision := mvcc.BytesToRev(revisions[i]).Main
		if p.full() && revision > reached {
			return reached, nil
		}
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(value, &kv); err != nil {
			return 0, fmt.Errorf("decode the change at revision %d: %w", revision, err)
		}
		p.add(eventOf(&kv, mvcc.IsTombstone(revisions[i]), revision))
		reached = revision
	}
	return to, nil
}

func eventOf(kv *mvccpb.KeyValue, deleted bool, revision int64) store.Event {
	if deleted {
		return store.Event{Key: string(kv.Key), Revision: revision, Deleted: true}
	}
	return store.Event{Key: string(kv.Key), Value: kv.Value, Revision: revision, Created: kv.CreateRevision == revision}
}
