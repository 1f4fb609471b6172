package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/lease"

	"skiff/internal/store"
)

// The lessor drops a lease's keys when they are deleted, moved to another lease or expire, and holds the same after a restart.
func TestLeaseKeysAreDropped(t *testing.T) {
	dir := t.TempDir()
	open := func() (*Store, *singleMember) {
		s, err := Embed(t.Context(), EmbedOptions{Dir: dir, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return s, s.engine.(*embedded).member.(*singleMember)
	}
	s, l := open()
	put := func(key string, ttl time.Duration) {
		t.Helper()
		if _, err := s.Put(t.Context(), key, []byte("v"), store.PutOptions{IfRevision: store.AnyRevision, TTL: ttl}); err != nil {
			t.Fatal(err)
		}
	}
	held := func() (keys, attached int) {
		l.lessor.mu.Lock()
		defer l.lessor.mu.Unlock()
		for _, list := range l.lessor.keys {
			attached += len(list)
		}
		return len(l.lessor.leaseOf), attached
	}
	const soon, late = time.Second, time.Hour
	for i := range 2 * minLeased {
		put(fmt.Sprintf("/soon/%04d", i), soon)
	}
	for i := range 10 {
		put(fmt.Sprintf("/late/%d", i), late)
		put(fmt.Sprintf("/late/%d", i), late)      // of the same lease
		put(fmt.Sprintf("/moved/%d", i), soon)     // which it leaves
		put(fmt.Sprintf("/moved/%d", i), late)     // for this one
		put(fmt.Sprintf("/permanent/%d", i), soon) // which it leaves
		put(fmt.Sprintf("/permanent/%d", i), 0)    // for none
		put(fmt.Sprintf("/deleted/%d", i), late)
		if _, err := s.Delete(t.Context(), fmt.Sprintf("/deleted/%d", i), store.AnyRevision); err != nil {
			t.Fatal(err)
		}
	}
	if keys, _ := held(); keys < 20 {
		t.Fatalf("leases have %d keys", keys)
	}
	if got := l.lessor.GetLease(lease.LeaseItem{Key: "/permanent/1"}); got != lease.NoLease {
		t.Errorf("a permanent key has lease %d", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		soon, err := s.List(ctx, "/soon/", store.ListOptions{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		if keys, attached := held(); soon.Count == 0 && keys == 20 && attached <= 40 {
			break
		} else if ctx.Err() != nil {
			t.Fatalf("leases have %d keys, of %d attached", keys, attached)
		}
		time.Sleep(10 * time.Millisecond)
	}
	count := func() int64 {
		all, err := s.List(ctx, "/", store.ListOptions{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		return all.Count
	}
	if got := count(); got != 30 {
		t.Errorf("%d keys are left", got)
	}
	l.lessor.mu.Lock()
	if l.lessor.most > minLeased {
		t.Errorf("the map is still made for %d keys", l.lessor.most)
	}
	l.lessor.mu.Unlock()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, l = open()
	defer s.Close()
	if keys, attached := held(); keys != 20 || attached != 20 {
		t.Errorf("after a restart leases have %d keys, of %d attached", keys, attached)
	}
	for _, one := range l.lessor.Leases() {
		if _, err := l.await(ctx, &request{change: &change{kind: kindRevoke, lease: int64(one.ID)}}); err != nil {
			t.Fatal(err)
		}
	}
	if keys, attached := held(); keys != 0 || attached != 0 || count() != 10 {
		t.Errorf("with all leases revoked they have %d keys, of %d attached, and %d keys are left", keys, attached, count())
	}
}
