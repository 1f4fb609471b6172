package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"skiff/internal/store"
)

func testGetMissing(t *testing.T, h *harness) {
	before := h.revision()
	_, revision, err := h.Get(h.ctx, "/a")
	h.wantError(err, store.ErrNotFound)
	if revision != before {
		t.Errorf("revision %d with ErrNotFound, want %d", revision, before)
	}
	h.put("/a", "1")
	deleted := h.delete("/a")
	_, revision, err = h.Get(h.ctx, "/a")
	h.wantError(err, store.ErrNotFound)
	if revision != deleted {
		t.Errorf("revision %d after the deletion, want %d", revision, deleted)
	}
}

func testPutGet(t *testing.T, h *harness) {
	written := h.put("/a", "1")
	other := h.put("/b", "2")
	kv, revision, err := h.Get(h.ctx, "/a")
	if err != nil {
		t.Fatal(err)
	}
	h.wantKV(kv, "/a", "1", written)
	if revision != other {
		t.Errorf("the store is at %d, Get says %d", other, revision)
	}
	updated := h.put("/a", "3")
	kv, _, err = h.Get(h.ctx, "/a")
	if err != nil {
		t.Fatal(err)
	}
	h.wantKV(kv, "/a", "3", updated)
}

func testPutGuards(t *testing.T, h *harness) {
	put := func(ifRevision int64) error {
		_, err := h.Put(h.ctx, "/a", []byte("x"), store.PutOptions{IfRevision: ifRevision})
		return err
	}
	h.wantConflict(put(5), nil) // it does not exist
	first := h.putIf("/a", "1", 0)
	h.wantConflict(put(0), &store.KV{Key: "/a", Value: []byte("1"), Revision: first})
	h.wantConflict(put(first+1), &store.KV{Key: "/a", Value: []byte("1"), Revision: first})
	second := h.putIf("/a", "2", first)
	h.wantConflict(put(first), &store.KV{Key: "/a", Value: []byte("2"), Revision: second})
	third := h.putIf("/a", "3", store.AnyRevision)
	if now := h.revision(); now != third {
		t.Errorf("refused writes moved the store from %d to %d", third, now)
	}
	h.delete("/a")
	h.wantConflict(put(third), nil)
	h.putIf("/a", "4", 0) // what was deleted does not exist
	h.putIf("/b", "1", store.AnyRevision)
}

func testDeleteGuards(t *testing.T, h *harness) {
	_, err := h.Delete(h.ctx, "/a", store.AnyRevision)
	h.wantError(err, store.ErrNotFound)
	_, err = h.Delete(h.ctx, "/a", 7)
	h.wantError(err, store.ErrNotFound)
	_, err = h.Delete(h.ctx, "/a", 0)
	h.wantError(err, store.ErrNotFound)

	first := h.put("/a", "1")
	current := &store.KV{Key: "/a", Value: []byte("1"), Revision: first}
	_, err = h.Delete(h.ctx, "/a", first-1)
	h.wantConflict(err, current)
	_, err = h.Delete(h.ctx, "/a", 0)
	h.wantConflict(err, current)
	if !h.exists("/a") {
		t.Fatal("a refused deletion deleted")
	}
	deleted, err := h.Delete(h.ctx, "/a", first)
	if err != nil {
		t.Fatal(err)
	}
	if now := h.revision(); deleted != first+1 || now != deleted {
		t.Errorf("deleted at %d, store at %d, want both %d", deleted, now, first+1)
	}
	h.put("/ab", "1")
	h.put("/a", "2")
	h.delete("/a")
	if !h.exists("/ab") {
		t.Error("deleting /a deleted /ab")
	}
}

func testConflictCarriesCurrent(t *testing.T, h *harness) {
	revision := h.put("/a", "what is there")
	_, err := h.Put(h.ctx, "/a", []byte("x"), store.PutOptions{IfRevision: 0})
	h.wantConflict(err, &store.KV{Key: "/a", Value: []byte("what is there"), Revision: revision})
	if !strings.Contains(err.Error(), "/a") || !strings.Contains(err.Error(), fmt.Sprint(revision)) {
		t.Errorf("error %q does not name key and revision", err)
	}
}

func testGuardRace(t *testing.T, h *harness) {
	const writers, rounds = 8, 10
	revision := h.put("/a", "0")
	for range rounds {
		var wins, conflicts int
		var won int64
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				written, err := h.Put(h.ctx, "/a", []byte("x"), store.PutOptions{IfRevision: revision})
				mu.Lock()
				defer mu.Unlock()
				if conflict := (*store.ConflictError)(nil); errors.As(err, &conflict) {
					conflicts++
				} else if err == nil {
					wins, won = wins+1, written
				} else {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if wins != 1 || conflicts != writers-1 {
			t.Fatalf("%d writers won, %d lost", wins, conflicts)
		}
		revision = won
	}
}

func testRevisions(t *testing.T, h *harness) {
	const writers, each = 8, 25
	start := h.revision()
	seen := map[int64]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			last := int64(0)
			for i := range each {
				revision, err := h.Put(h.ctx, fmt.Sprintf("/%d/%d", w, i), nil, store.PutOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				now, err := h.Revision(h.ctx)
				if err != nil || now < revision {
					t.Errorf("revision %d (%v) after a write at %d", now, err, revision)
				}
				// A revision that was returned can be read.
				if _, err := h.List(h.ctx, "/", store.ListOptions{Revision: now, Limit: 1}); err != nil {
					t.Errorf("list at %d: %v", now, err)
				}
				mu.Lock()
				if seen[revision] || revision <= last {
					t.Errorf("revision %d is not new, or not after %d", revision, last)
				}
				seen[revision], last = true, revision
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if now := h.revision(); now != start+writers*each {
		t.Errorf("%d writes moved the store from %d to %d", writers*each, start, now)
	}
}

func testBadCalls(t *testing.T, h *harness) {
	before := h.revision()
	bad := map[string]error{}
	_, _, bad["get without key"] = h.Get(h.ctx, "")
	_, bad["put without key"] = h.Put(h.ctx, "", nil, store.PutOptions{})
	_, bad["put with a strange guard"] = h.Put(h.ctx, "/a", nil, store.PutOptions{IfRevision: -2})
	_, bad["put with a negative TTL"] = h.Put(h.ctx, "/a", nil, store.PutOptions{TTL: -time.Second})
	_, bad["delete without key"] = h.Delete(h.ctx, "", store.AnyRevision)
	_, bad["delete with a strange guard"] = h.Delete(h.ctx, "/a", -2)
	_, bad["list from outside the prefix"] = h.List(h.ctx, "/a/", store.ListOptions{From: "/b/"})
	_, bad["list with a negative limit"] = h.List(h.ctx, "/a/", store.ListOptions{Limit: -1})
	_, bad["list at a negative revision"] = h.List(h.ctx, "/a/", store.ListOptions{Revision: -1})
	for what, err := range bad {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	w := h.Watch(h.ctx, "/a/", -1)
	for range w.Batches() {
		t.Error("a batch from a watch after a negative revision")
	}
	if w.Err() == nil {
		t.Error("watch after a negative revision: no error")
	}
	if now := h.revision(); now != before {
		t.Errorf("refused calls moved the store from %d to %d", before, now)
	}
}

func testValueSizes(t *testing.T, h *harness) {
	w := h.watch("/", h.revision())
	for _, size := range []int{0, 1, 100_000, 3_000_000} {
		key, value := fmt.Sprintf("/%d", size), bytes.Repeat([]byte{0xfe}, size)
		if _, err := h.Put(h.ctx, key, value, store.PutOptions{}); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		kv, _, err := h.Get(h.ctx, key)
		if err != nil || !bytes.Equal(kv.Value, value) {
			t.Errorf("%d bytes came back as %d, %v", size, len(kv.Value), err)
		}
		if event := w.next(); event.Key != key || !bytes.Equal(event.Value, value) {
			t.Errorf("%d bytes were watched as %s", size, showEvent(event))
		}
	}
	before := h.revision()
	_, err := h.Put(h.ctx, "/huge", make([]byte, 5<<20), store.PutOptions{})
	h.wantError(err, store.ErrTooLarge)
	if h.exists("/huge") || h.revision() != before {
		t.Error("a value that is too large left something behind")
	}
}
