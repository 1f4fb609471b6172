package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"skiff/internal/store"
)

// testExpiry makes keys whose TTL was changed in every way, next to some that just expire. When these have expired, the
// others would have too.
func testExpiry(t *testing.T, h *harness) {
	const ttl = time.Second
	w := h.watch("/", h.revision())
	start := time.Now()
	h.put("/permanent", "")
	h.putTTL("/expires", ttl)
	h.putTTL("/made-permanent", ttl)
	h.put("/made-permanent", "an update without TTL")
	h.putTTL("/extended", ttl)
	h.putTTL("/extended", time.Hour)
	h.putTTL("/deleted", ttl)
	h.delete("/deleted")
	h.put("/deleted", "created again without TTL")
	h.putTTL("/shortened", time.Hour)
	h.putTTL("/shortened", ttl)
	h.put("/lately-temporary", "")
	h.putTTL("/lately-temporary", ttl)

	expired := map[string]bool{}
	for expiring := []string{"/expires", "/shortened", "/lately-temporary"}; len(expired) < len(expiring); {
		event := w.next()
		if !event.Deleted || event.Revision <= h.revisionOf("/deleted") {
			continue
		}
		if !slices.Contains(expiring, event.Key) {
			t.Errorf("%s, but it was not to expire", showEvent(event))
		}
		if h.exists(event.Key) {
			t.Errorf("%s has expired and is there", event.Key)
		}
		expired[event.Key] = true
		if took := time.Since(start); took < ttl {
			t.Errorf("%s expired after %v, before its %v", event.Key, took, ttl)
		}
	}
	for _, key := range []string{"/permanent", "/made-permanent", "/extended", "/deleted"} {
		if !h.exists(key) {
			t.Errorf("%s is expired", key)
		}
	}
	h.putIf("/expires", "again", 0)
}

func testContext(t *testing.T, h *harness) {
	h.put("/a", "1")
	before := h.revision()
	ctx, cancel := context.WithCancel(h.ctx)
	cancel()
	failures := map[string]error{}
	_, _, failures["get"] = h.Get(ctx, "/a")
	_, failures["list"] = h.List(ctx, "/", store.ListOptions{})
	_, failures["put"] = h.Put(ctx, "/a", nil, store.PutOptions{IfRevision: store.AnyRevision})
	_, failures["delete"] = h.Delete(ctx, "/a", store.AnyRevision)
	_, failures["revision"] = h.Revision(ctx)
	failures["progress"] = h.Progress(ctx)
	failures["compact"] = h.Compact(ctx, before)
	for what, err := range failures {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v", what, err)
		}
	}
	if now := h.revision(); now != before {
		t.Errorf("cancelled calls moved the store from %d to %d", before, now)
	}
}

func testClose(t *testing.T, h *harness) {
	h.put("/a", "1")
	for range 2 {
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	failures := map[string]error{}
	_, _, failures["get"] = h.Get(h.ctx, "/a")
	_, failures["list"] = h.List(h.ctx, "/", store.ListOptions{})
	_, failures["put"] = h.Put(h.ctx, "/a", nil, store.PutOptions{})
	_, failures["delete"] = h.Delete(h.ctx, "/a", store.AnyRevision)
	_, failures["revision"] = h.Revision(h.ctx)
	failures["progress"] = h.Progress(h.ctx)
	failures["compact"] = h.Compact(h.ctx, 1)
	failures["snapshot"] = h.Snapshot(h.ctx, &bytes.Buffer{})
	for what, err := range failures {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s of a closed store: %v", what, err)
		}
	}
	h.watch("/", 1).wantBroken(store.ErrClosed)
}

// testSnapshot tests only the writing; each engine tests its restore.
func testSnapshot(t *testing.T, h *harness) {
	h.putMany(50, 8)
	var snapshot bytes.Buffer
	if err := h.Snapshot(h.ctx, &snapshot); err != nil {
		t.Fatal(err)
	}
	if snapshot.Len() == 0 {
		t.Error("the snapshot is empty")
	}
	if err := h.Snapshot(h.ctx, failingWriter{}); !errors.Is(err, errDiskFull) {
		t.Errorf("a writer that fails: %v", err)
	}
	h.put("/a", "the store lives on")
}

var errDiskFull = errors.New("no space left on device")

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errDiskFull }
