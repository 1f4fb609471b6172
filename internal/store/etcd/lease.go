package etcd

import (
	"context"
	"time"
)

const (
	// minShare and maxShare bound for how long writes with the same TTL share a lease: a twentieth of the TTL.
	maxShare = time.Minute
	minShare = time.Second
	// maxShared bounds how many writes share a lease, and so how many keys expire in one transaction.
	maxShared = 1000
	// leaseMargin allows for the time between taking a lease and the write that uses it, so that nothing expires early.
	leaseMargin = time.Second
	// maxTTLs bounds how many different TTLs are remembered.
	maxTTLs = 64
)

// leases hands out leases, the same one to many writes: granting one costs as much as a write.
type leases struct {
	grant func(ctx context.Context, seconds int64) (int64, error)
	lock  chan struct{} // a mutex one can wait for with a context
	byTTL map[time.Duration]*sharedLease
}

type sharedLease struct {
	id    int64
	until time.Time // new writes do not take the lease after this time
	users int
}

func newLeases(grant func(context.Context, int64) (int64, error)) *leases {
	return &leases{grant: grant, lock: make(chan struct{}, 1), byTTL: map[time.Duration]*sharedLease{}}
}

// take returns a lease that lasts at least ttl from now.
func (l *leases) take(ctx context.Context, ttl time.Duration) (int64, error) {
	select {
	case l.lock <- struct{}{}:
		defer func() { <-l.lock }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	ttl = roundUp(ttl)
	now := time.Now()
	if shared := l.byTTL[ttl]; shared != nil && now.Before(shared.until) && shared.users < maxShared {
		shared.users++
		return shared.id, nil
	}
	share := min(max(ttl/20, minShare), maxShare)
	id, err := l.grant(ctx, int64(roundUp(ttl+share+leaseMargin)/time.Second))
	if err != nil {
		return 0, err
	}
	l.dropOld(now)
	l.byTTL[ttl] = &sharedLease{id: id, until: now.Add(share), users: 1}
	return id, nil
}

// forget stops handing out a lease that no longer exists.
func (l *leases) forget(id int64) {
	l.lock <- struct{}{}
	defer func() { <-l.lock }()
	for ttl, shared := range l.byTTL {
		if shared.id == id {
			delete(l.byTTL, ttl)
		}
	}
}

func (l *leases) dropOld(now time.Time) {
	for ttl, shared := range l.byTTL {
		if len(l.byTTL) >= maxTTLs || !now.Before(shared.until) {
			delete(l.byTTL, ttl)
		}
	}
}

// roundUp rounds up to whole seconds, the unit of etcd's leases.
func roundUp(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}
