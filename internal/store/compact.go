package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"k8s.io/utils/clock"
)

// CompactionKey is the key by which the API servers of one cluster agree on who compacts. It is Kubernetes' name, outside
// every prefix of objects, so that skiff and kube-apiserver can share one etcd.
const CompactionKey = "compact_rev_key"

// CompactorOptions decide how much history is kept.
type CompactorOptions struct {
	// Interval is the time between compactions, and so the minimum age of a compacted revision. 5 minutes if zero.
	Interval time.Duration
	Clock    clock.Clock  // the real one if nil
	Log      *slog.Logger // slog.Default if nil
}

// RunCompactor compacts, once per interval, to the revision at the beginning of the last interval. It returns when ctx ends.
//
// Any number of API servers may run it on one store: the one that writes CompactionKey first in an interval compacts, the
// others see that it was written and wait for the next interval.
func RunCompactor(ctx context.Context, s Store, opts CompactorOptions) {
	if opts.Interval == 0 {
		opts.Interval = 5 * time.Minute
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	c := compactor{store: s}
	for {
		if err := c.round(ctx); err != nil && ctx.Err() == nil {
			opts.Log.Warn("failed to compact the store; retrying", "in", opts.Interval, "error", err)
		}
		timer := opts.Clock.NewTimer(opts.Interval)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// compactor holds what the previous round observed.
type compactor struct {
	store       Store
	revision    int64 // the store's revision; 0 before the first round
	keyRevision int64 // the revision of CompactionKey; 0 if it does not exist
}

// round compacts to the revision of the previous round, unless another API server has done so or nothing was written.
func (c *compactor) round(ctx context.Context) error {
	key, now, err := c.store.Get(ctx, CompactionKey)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("read %s: %w", CompactionKey, err)
	}
	firstRound := c.revision == 0
	writtenByOther := key.Revision != c.keyRevision
	// If the key itself is the newest write nothing has changed since: an idle cluster writes nothing.
	nothingNew := now == key.Revision
	if firstRound || writtenByOther || nothingNew {
		c.revision, c.keyRevision = now, key.Revision
		return nil
	}
	written, err := c.store.Put(ctx, CompactionKey, []byte(strconv.FormatInt(c.revision, 10)), PutOptions{IfRevision: c.keyRevision, Class: Critical})
	if conflict := (*ConflictError)(nil); errors.As(err, &conflict) {
		c.revision, c.keyRevision = now, 0
		if conflict.Current != nil {
			c.keyRevision = conflict.Current.Revision
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", CompactionKey, err)
	}
	c.keyRevision = written
	if err := c.store.Compact(ctx, c.revision); err != nil {
		return fmt.Errorf("compact to revision %d: %w", c.revision, err)
	}
	c.revision = written
	return nil
}
