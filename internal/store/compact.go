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

// CompactionKey is where the API servers of one cluster agree on who compacts. It is Kubernetes' own name, outside
// every prefix of objects, so that skiff and kube-apiserver can share one etcd.
const CompactionKey = "compact_rev_key"

// CompactorOptions say how much history is kept.
type CompactorOptions struct {
	// Interval is the time between compactions, and so the least age of what is forgotten. 5 minutes if zero.
	Interval time.Duration
	Clock    clock.Clock  // the real one if nil
	Log      *slog.Logger // slog.Default if nil
}

// RunCompactor forgets, once per interval, what was replaced before the last interval began. It returns when ctx ends.
//
// Any number of API servers may run it on one store: whoever moves CompactionKey first in an interval compacts, the
// others see that it moved and wait for the next one.
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
			opts.Log.Warn("cannot compact the store; trying again", "in", opts.Interval, "error", err)
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

// compactor remembers what the previous round saw.
type compactor struct {
	store    Store
	revision int64 // of the store; 0 before the first round
	mark     int64 // revision of CompactionKey; 0 if it does not exist
}

func (c *compactor) round(ctx context.Context) error {
	mark, now, err := c.store.Get(ctx, CompactionKey)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("read %s: %w", CompactionKey, err)
	}
	firstRound := c.revision == 0
	movedByOther := mark.Revision != c.mark
	// The mark itself being the newest write means that nothing happened since: an idle cluster writes nothing.
	nothingNew := now == mark.Revision
	if firstRound || movedByOther || nothingNew {
		c.revision, c.mark = now, mark.Revision
		return nil
	}
	moved, err := c.store.Put(ctx, CompactionKey, []byte(strconv.FormatInt(c.revision, 10)), PutOptions{IfRevision: c.mark, Class: Critical})
	if conflict := (*ConflictError)(nil); errors.As(err, &conflict) {
		c.revision, c.mark = now, 0
		if conflict.Current != nil {
			c.mark = conflict.Current.Revision
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("move %s: %w", CompactionKey, err)
	}
	c.mark = moved
	if err := c.store.Compact(ctx, c.revision); err != nil {
		return fmt.Errorf("compact to revision %d: %w", c.revision, err)
	}
	c.revision = moved
	return nil
}
