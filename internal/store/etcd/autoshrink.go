package etcd

import (
	"context"
	"errors"
	"time"

	"skiff/internal/store"
)

const (
	// shrinkAbove is the size from which on the file of the database is made smaller when more than half of it is free.
	shrinkAbove = 64 << 20
	shrinkEvery = 10 * time.Second
	// shrinkAfterError is how long nothing is tried after a failure.
	shrinkAfterError = 5 * time.Minute
	// maxDefragment is how much a database of etcd's server may hold to be made smaller by itself: unlike a lone member's,
	// everybody waits while it is copied.
	maxDefragment = 16 << 20
)

// shrinkPolicy says when the file of the database is made smaller.
type shrinkPolicy struct {
	above int64
	every time.Duration
}

// isDue is true if a file of some size should be made smaller.
func (p shrinkPolicy) isDue(size, inUse int64) bool { return size >= p.above && inUse < size/2 }

// shrink makes the file of the database smaller whenever most of it is free.
func (e *embedded) shrink(ctx context.Context, policy shrinkPolicy) {
	wait := policy.every
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = policy.every
		size, inUse := e.backend.Size(), e.backend.SizeInUse()
		if !policy.isDue(size, inUse) {
			continue
		}
		if _, stops := e.member.(*server); stops && inUse > maxDefragment {
			continue
		}
		switch err := e.defragment(ctx); {
		case err == nil:
			e.log.log.Info("shrank the database", "from", size, "to", e.backend.Size())
		case ctx.Err() == nil && !errors.Is(err, store.ErrClosed):
			e.log.log.Warn("failed to shrink the database, most of which is free", "size", size, "inUse", inUse, "err", err)
			wait = shrinkAfterError
		}
	}
}
