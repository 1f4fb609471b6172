package etcd

import (
	"context"
	"errors"
	"time"

	"skiff/internal/store"
)

const (
	// defragAbove is the size from which on the database is defragmented when more than half of its file is free.
	defragAbove = 64 << 20
	defragEvery = 10 * time.Second
	// defragAfterError is the time until the next attempt after a failure.
	defragAfterError = 5 * time.Minute
	// maxDefragment is the size up to which a database of etcd's server is defragmented automatically: unlike a singleMember's,
	// it blocks all calls while it is copied.
	maxDefragment = 16 << 20
)

// defragPolicy decides when the database is defragmented.
type defragPolicy struct {
	above int64
	every time.Duration
}

// isDue reports whether a file of a size should be defragmented.
func (p defragPolicy) isDue(size, inUse int64) bool { return size >= p.above && inUse < size/2 }

// autoDefragment defragments the database whenever most of its file is free, until ctx ends.
func (e *embedded) autoDefragment(ctx context.Context, policy defragPolicy) {
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
		if _, blocks := e.member.(*server); blocks && inUse > maxDefragment {
			continue
		}
		switch err := e.defragment(ctx); {
		case err == nil:
			e.log.log.Info("defragmented the database", "from", size, "to", e.backend.Size())
		case ctx.Err() == nil && !errors.Is(err, store.ErrClosed):
			e.log.log.Warn("failed to defragment the database", "size", size, "inUse", inUse, "err", err)
			wait = defragAfterError
		}
	}
}
