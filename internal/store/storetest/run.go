package storetest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"skiff/internal/store"
)

// waitTimeout bounds how long a test waits for something that should happen soon.
const waitTimeout = 20 * time.Second

// Run checks that the stores which open returns keep the contract.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	tests := []struct {
		name string
		run  func(*testing.T, *harness)
	}{
		{"get of what does not exist", testGetMissing},
		{"put and get", testPutGet},
		{"put is guarded", testPutGuards},
		{"delete is guarded", testDeleteGuards},
		{"a conflict carries the current version", testConflictCarriesCurrent},
		{"writers with the same guard: one wins", testGuardRace},
		{"each write is one revision", testRevisions},
		{"bad calls are refused", testBadCalls},
		{"values of every size", testValueSizes},

		{"list in order", testListOrder},
		{"list stops at the prefix", testListPrefixBoundary},
		{"list in pages", testListPages},
		{"list at an old revision", testListAtRevision},
		{"list at a future revision", testListFuture},

		{"compaction drops old versions", testCompactionLists},
		{"compaction keeps what is current", testCompactionKeepsCurrent},
		{"compaction again, and of the future", testCompactionTwice},
		{"compaction breaks watches from before it", testCompactionWatch},

		{"watch what comes", testWatchNow},
		{"watch from the past", testWatchPast},
		{"watch from the future", testWatchFuture},
		{"watch stops at the prefix", testWatchPrefixBoundary},
		{"watch everything", testWatchEverything},
		{"watch a long history", testWatchLongHistory},
		{"watch misses nothing among concurrent writers", testWatchConcurrentWriters},
		{"watch resumed in the middle", testWatchResume},
		{"watch with a reader that sleeps", testWatchSlowReader},
		{"watch ends with its context", testWatchContext},
		{"watch ends with the store", testWatchClose},

		{"progress of an idle watch", testProgressIdle},
		{"progress past changes elsewhere", testProgressElsewhere},
		{"progress comes after the changes", testProgressOrder},

		{"keys expire, unless their TTL is taken back", testExpiry},

		{"cancelled contexts", testContext},
		{"closing", testClose},
		{"snapshot", testSnapshot},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, newHarness(t, open))
		})
	}
}

// harness is a store under test with shorthands that fail the test.
type harness struct {
	store.Store
	t   *testing.T
	ctx context.Context
}

func newHarness(t *testing.T, open func(t *testing.T) store.Store) *harness {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*waitTimeout)
	h := &harness{Store: open(t), t: t, ctx: ctx}
	t.Cleanup(func() {
		cancel()
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return h
}

// put writes a key without a guard.
func (h *harness) put(key, value string) int64 {
	h.t.Helper()
	return h.putIf(key, value, store.AnyRevision)
}

func (h *harness) putIf(key, value string, ifRevision int64) int64 {
	h.t.Helper()
	revision, err := h.Put(h.ctx, key, []byte(value), store.PutOptions{IfRevision: ifRevision})
	if err != nil {
		h.t.Fatalf("put %q: %v", key, err)
	}
	return revision
}

func (h *harness) putTTL(key string, ttl time.Duration) int64 {
	h.t.Helper()
	revision, err := h.Put(h.ctx, key, []byte("v"), store.PutOptions{IfRevision: store.AnyRevision, TTL: ttl})
	if err != nil {
		h.t.Fatalf("put %q: %v", key, err)
	}
	return revision
}

func (h *harness) delete(key string) int64 {
	h.t.Helper()
	revision, err := h.Delete(h.ctx, key, store.AnyRevision)
	if err != nil {
		h.t.Fatalf("delete %q: %v", key, err)
	}
	return revision
}

func (h *harness) compact(revision int64) {
	h.t.Helper()
	if err := h.Compact(h.ctx, revision); err != nil {
		h.t.Fatalf("compact %d: %v", revision, err)
	}
}

func (h *harness) revision() int64 {
	h.t.Helper()
	revision, err := h.Revision(h.ctx)
	if err != nil {
		h.t.Fatalf("revision: %v", err)
	}
	return revision
}

func (h *harness) progress() {
	h.t.Helper()
	if err := h.Progress(h.ctx); err != nil {
		h.t.Fatalf("progress: %v", err)
	}
}

func (h *harness) list(prefix string, opts store.ListOptions) store.ListResult {
	h.t.Helper()
	result, err := h.List(h.ctx, prefix, opts)
	if err != nil {
		h.t.Fatalf("list %q %+v: %v", prefix, opts, err)
	}
	return result
}

// exists reports whether a key exists.
func (h *harness) exists(key string) bool {
	h.t.Helper()
	_, _, err := h.Get(h.ctx, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		h.t.Fatalf("get %q: %v", key, err)
	}
	return err == nil
}

// revisionOf returns the revision of a key, which must exist.
func (h *harness) revisionOf(key string) int64 {
	h.t.Helper()
	kv, _, err := h.Get(h.ctx, key)
	if err != nil {
		h.t.Fatalf("get %q: %v", key, err)
	}
	return kv.Revision
}

func (h *harness) wantKV(got store.KV, key, value string, revision int64) {
	h.t.Helper()
	if got.Key != key || !bytes.Equal(got.Value, []byte(value)) || got.Revision != revision {
		h.t.Fatalf("got %s, want %q=%q at %d", show(got), key, value, revision)
	}
}

func (h *harness) wantError(err, want error) {
	h.t.Helper()
	if !errors.Is(err, want) {
		h.t.Fatalf("got error %v, want %v", err, want)
	}
}

func (h *harness) wantConflict(err error, current *store.KV) {
	h.t.Helper()
	var conflict *store.ConflictError
	if !errors.As(err, &conflict) {
		h.t.Fatalf("got error %v, want a conflict", err)
	}
	switch {
	case current == nil && conflict.Current != nil:
		h.t.Fatalf("conflict carries %s, want nothing", show(*conflict.Current))
	case current != nil && conflict.Current == nil:
		h.t.Fatalf("conflict carries nothing, want %s", show(*current))
	case current != nil:
		h.wantKV(*conflict.Current, current.Key, string(current.Value), current.Revision)
	}
}
