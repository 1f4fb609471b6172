package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/lease"

	"skiff/internal/store"
)

// lessorOf returns the lessor of a store.
func lessorOf(e *embedded) lease.Lessor { return e.member.(*singleMember).lessor }

func leaseOf(t *testing.T, e *embedded, key string) int64 {
	t.Helper()
	result, err := e.read(t.Context(), []byte(key), nil, 0, 0, true)
	if err != nil || len(result.kvs) != 1 {
		t.Fatalf("%q: %v, %v", key, result.kvs, err)
	}
	return result.kvs[0].Lease
}

func putTTL(t *testing.T, s *Store, key string, ttl time.Duration) {
	t.Helper()
	if _, err := s.Put(t.Context(), key, []byte("v"), store.PutOptions{IfRevision: store.AnyRevision, TTL: ttl}); err != nil {
		t.Fatal(err)
	}
}

func TestLeasesAreShared(t *testing.T) {
	t.Parallel()
	s, e := open(t, EmbedOptions{})
	const writers, each = 10, 210
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			for i := range each {
				putTTL(t, s, fmt.Sprintf("/%d/%d", n, i), time.Hour)
			}
		})
	}
	wg.Wait()
	if got := len(lessorOf(e).Leases()); got != 3 {
		t.Errorf("%d keys share %d leases, want 3", writers*each, got)
	}
	for _, l := range lessorOf(e).Leases() {
		if l.TTL() < 3660 || l.TTL() > 3670 || len(l.Keys()) > maxShared {
			t.Errorf("a lease of %d s with %d keys", l.TTL(), len(l.Keys()))
		}
	}
	putTTL(t, s, "/other", 2*time.Hour)
	if got := len(lessorOf(e).Leases()); got != 4 {
		t.Errorf("%d leases after a write with another TTL, want 4", got)
	}
}

func TestLeaseIsReattachedAndDetached(t *testing.T) {
	t.Parallel()
	s, e := open(t, EmbedOptions{})
	putTTL(t, s, "/a", time.Hour)
	first := leaseOf(t, e, "/a")
	putTTL(t, s, "/a", 2*time.Hour)
	if second := leaseOf(t, e, "/a"); second == first || second == 0 {
		t.Errorf("lease %d, then %d", first, second)
	}
	if _, err := s.Put(t.Context(), "/a", nil, store.PutOptions{IfRevision: store.AnyRevision}); err != nil {
		t.Fatal(err)
	}
	if now := leaseOf(t, e, "/a"); now != 0 {
		t.Errorf("lease %d after an update without TTL", now)
	}
}

func TestLostLeaseIsReplaced(t *testing.T) {
	t.Parallel()
	s, e := open(t, EmbedOptions{})
	putTTL(t, s, "/a", time.Hour)
	lost := leaseOf(t, e, "/a")
	if _, err := e.member.(*singleMember).await(t.Context(), &request{change: &change{kind: kindRevoke, lease: lost}}); err != nil {
		t.Fatal(err)
	}
	putTTL(t, s, "/b", time.Hour)
	if now := leaseOf(t, e, "/b"); now == lost || now == 0 {
		t.Errorf("lease %d after %d was lost", now, lost)
	}
}

func TestLeaseDurations(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		ttl  time.Duration
		want int64
	}{
		{time.Millisecond, 3}, // a second, a second shared, a second of margin
		{time.Second, 3},
		{15 * time.Second, 17},
		{100 * time.Second, 106},
		{time.Hour, 3661},
		{24 * time.Hour, 86461},
	} {
		var granted int64
		l := newLeases(func(_ context.Context, seconds int64) (int64, error) {
			granted = seconds
			return 1, nil
		})
		if _, err := l.take(t.Context(), test.ttl); err != nil {
			t.Fatal(err)
		}
		if granted != test.want {
			t.Errorf("a TTL of %v takes a lease of %d s, want %d", test.ttl, granted, test.want)
		}
	}
}

func TestLeasesRememberFew(t *testing.T) {
	t.Parallel()
	next := int64(0)
	l := newLeases(func(context.Context, int64) (int64, error) {
		next++
		return next, nil
	})
	for i := range 10 * maxTTLs {
		if _, err := l.take(t.Context(), time.Duration(i+1)*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.byTTL) > maxTTLs {
		t.Errorf("%d leases are remembered", len(l.byTTL))
	}
}

func TestLeaseGrantFails(t *testing.T) {
	t.Parallel()
	s, _ := open(t, EmbedOptions{})
	s.leases.grant = func(context.Context, int64) (int64, error) { return 0, errors.New("broken") }
	_, err := s.Put(t.Context(), "/a", nil, store.PutOptions{TTL: time.Minute})
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v; nothing was written, so it should say so", err)
	}
}
