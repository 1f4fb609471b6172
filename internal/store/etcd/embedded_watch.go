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

// fromNow is how a watch of etcd's is told to begin with the next change.
const fromNow int64 = 0

// replayStep is how many revisions of history are read at a time.
const replayStep = 1000

// follow watches all keys and not only the prefix, so that the watch sees every revision and always knows how far it has
// come.
//
// What lies in the past is read from the database here. etcd would do it too, but up to 100 ms later, and all of it at
// once.
func (e *embedded) follow(ctx context.Context, p *pump) error {
	if p.seen+1 < e.kv.FirstRev() {
		return store.ErrCompacted
	}
	stream := e.kv.NewWatchStream()
	defer stream.Close()
	everything, noEnd := prefixRange("")
	if _, err := stream.Watch(ctx, 0, everything, noEnd, fromNow); err != nil {
		return err
	}
	// Asked after the stream has begun, so there is no gap; what is told twice is skipped below. Not e.newest: its
	// change may not have reached the database yet.
	if err := e.replay(ctx, p, e.kv.Rev()); err != nil {
		return err
	}
	return run(ctx, p, stream.Chan(), func(response mvcc.WatchResponse) error {
		if response.CompactRevision != 0 {
			return store.ErrCompacted
		}
		mvcc.ReportEventReceived(len(response.Events))
		seen := p.seen // several events may share a revision
		for _, event := range response.Events {
			if revision := event.Kv.ModRevision; revision > seen {
				e.awaitTold(revision)
				p.take(eventOf(event.Kv, event.Type == mvccpb.Event_DELETE, revision))
				p.reach(revision)
			}
		}
		return nil
	}, nil)
}

// awaitTold waits until newest has a revision that etcd is telling its watches of at this moment: reads that begin after a batch was delivered find what it told of.
func (e *embedded) awaitTold(revision int64) {
	for e.newest.Load() < revision {
		runtime.Gosched()
	}
}

// replay takes the changes from p.seen to last. The last of them are left to be delivered by run, so that a slow
// reader does not hold up the stream.
func (e *embedded) replay(ctx context.Context, p *pump, last int64) error {
	for p.seen < last {
		if err := p.flush(ctx); err != nil {
			return err
		}
		reached, err := e.history(p, p.seen+1, min(p.seen+replayStep, last))
		if err != nil {
			return err
		}
		p.reach(reached)
	}
	return nil
}

// history takes the changes of some revisions, which are the keys under which etcd stores them, and says how far it
// has come: not to the end if the values are large.
func (e *embedded) history(p *pump, from, to int64) (reached int64, err error) {
	tx := e.backend.ConcurrentReadTx()
	tx.RLock()
	defer tx.RUnlock()
	first := mvcc.RevToBytes(mvcc.Revision{Main: from}, mvcc.NewRevBytes())
	end := mvcc.RevToBytes(mvcc.Revision{Main: to + 1}, mvcc.NewRevBytes())
	revisions, values := tx.UnsafeRange(schema.Key, first, end, 0)
	// Asked after reading: what a compaction has removed meanwhile, it has announced before.
	if from < e.kv.FirstRev() {
		return 0, store.ErrCompacted
	}
	var last []byte
	for i, value := range values {
		// First comes what is on disk, then what was to be written there when the transaction began: just after it
		// has been written both hold the same, and it comes twice.
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
		p.take(eventOf(&kv, mvcc.IsTombstone(revisions[i]), revision))
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
