package storetest

import (
	"fmt"
	"slices"
	"testing"

	"skiff/internal/store"
)

func keysOf(result store.ListResult) []string {
	keys := []string{}
	for _, kv := range result.KVs {
		keys = append(keys, kv.Key)
	}
	return keys
}

func (h *harness) wantKeys(result store.ListResult, keys ...string) {
	h.t.Helper()
	if got := keysOf(result); !slices.Equal(got, keys) {
		h.t.Fatalf("got keys %q, want %q", got, keys)
	}
}

func testListOrder(t *testing.T, h *harness) {
	empty := h.list("/", store.ListOptions{})
	if len(empty.KVs) != 0 || empty.Count != 0 || empty.More || empty.Revision != h.revision() {
		t.Errorf("list of nothing: %s", showList(empty))
	}
	for _, key := range []string{"/b", "/a/2", "/a", "/c", "/a/10", "/a\xff", "/a\x00"} {
		h.put(key, "v"+key)
	}
	last := h.put("/a/1", "one")
	result := h.list("/a", store.ListOptions{})
	h.wantKeys(result, "/a", "/a\x00", "/a/1", "/a/10", "/a/2", "/a\xff")
	if result.Revision != last || result.Count != 6 || result.More {
		t.Errorf("got %s", showList(result))
	}
	h.wantKV(result.KVs[2], "/a/1", "one", last)
}

func testListPrefixBoundary(t *testing.T, h *harness) {
	for _, key := range []string{"/a/b", "/a/b/", "/a/b/1", "/a/bc/1", "/a/b0", "/a/c", "\xff\xff", "\xff\xff1", "\xff"} {
		h.put(key, "")
	}
	h.wantKeys(h.list("/a/b/", store.ListOptions{}), "/a/b/", "/a/b/1")
	h.wantKeys(h.list("/a/b", store.ListOptions{}), "/a/b", "/a/b/", "/a/b/1", "/a/b0", "/a/bc/1")
	h.wantKeys(h.list("\xff\xff", store.ListOptions{}), "\xff\xff", "\xff\xff1")
	h.wantKeys(h.list("/x/", store.ListOptions{}))
	if all := h.list("", store.ListOptions{}); all.Count != 9 {
		t.Errorf("the empty prefix has %d keys, want 9", all.Count)
	}
}

func testListPages(t *testing.T, h *harness) {
	var want []string
	for i := range 10 {
		key := fmt.Sprintf("/p/%02d", i)
		h.put(key, "")
		want = append(want, key)
	}
	h.put("/q/0", "")

	var got []string
	from, revision := "", int64(0)
	for page := 0; ; page++ {
		result := h.list("/p/", store.ListOptions{From: from, Limit: 3, Revision: revision})
		if left := int64(10 - len(got)); result.Count != left {
			t.Errorf("page %d: count %d, want %d", page, result.Count, left)
		}
		got = append(got, keysOf(result)...)
		if page == 0 {
			revision = result.Revision
			h.delete("/p/05") // must not disturb the pages to come
			h.put("/p/041", "")
		}
		if result.Revision != revision {
			t.Errorf("page %d was read at %d, want %d", page, result.Revision, revision)
		}
		if !result.More {
			break
		}
		from = got[len(got)-1] + "\x00"
	}
	if !slices.Equal(got, want) {
		t.Errorf("pages hold %q, want %q", got, want)
	}

	got = nil
	for from = ""; ; from = got[len(got)-1] + "\x00" {
		result := h.list("/p/", store.ListOptions{From: from, Limit: 3, Revision: revision, Uncounted: true})
		if got = append(got, keysOf(result)...); !result.More {
			break
		}
		if len(result.KVs) != 3 {
			t.Errorf("a page that is not counted: %s", showList(result))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("pages that are not counted hold %q, want %q", got, want)
	}
	if fits := h.list("/p/", store.ListOptions{Limit: 3, From: "/p/07", Uncounted: true}); fits.More || len(fits.KVs) != 3 {
		t.Errorf("a page that just fits and is not counted: %s", showList(fits))
	}
	if all := h.list("/p/", store.ListOptions{Uncounted: true}); all.More || len(all.KVs) != 10 {
		t.Errorf("all, not counted: %s", showList(all))
	}

	exact := h.list("/p/", store.ListOptions{Limit: 3, From: "/p/07"})
	h.wantKeys(exact, "/p/07", "/p/08", "/p/09")
	if exact.More || exact.Count != 3 {
		t.Errorf("a page that just fits: %s", showList(exact))
	}
	h.wantKeys(h.list("/p/", store.ListOptions{From: "/p/08"}), "/p/08", "/p/09")
	h.wantKeys(h.list("/p/", store.ListOptions{From: "/p/085"}), "/p/09")
	h.wantKeys(h.list("/p/", store.ListOptions{From: "/p/z"}))
	h.wantKeys(h.list("/p/", store.ListOptions{From: "/p/", Limit: 1}), "/p/00")
}

func testListAtRevision(t *testing.T, h *harness) {
	empty := h.revision()
	created := h.put("/a", "1")
	updated := h.put("/a", "2")
	other := h.put("/b", "1")
	deleted := h.delete("/a")
	again := h.put("/a", "3")

	at := func(revision int64) store.ListResult {
		result := h.list("/", store.ListOptions{Revision: revision})
		if result.Revision != revision {
			t.Errorf("list at %d says it is at %d", revision, result.Revision)
		}
		return result
	}
	h.wantKeys(at(empty))
	h.wantKV(at(created).KVs[0], "/a", "1", created)
	h.wantKV(at(updated).KVs[0], "/a", "2", updated)
	h.wantKeys(at(other), "/a", "/b")
	h.wantKV(at(other).KVs[0], "/a", "2", updated)
	h.wantKeys(at(deleted), "/b")
	h.wantKV(at(again).KVs[0], "/a", "3", again)
	if count := at(other).Count; count != 2 {
		t.Errorf("count %d, want 2", count)
	}
}

func testListFuture(t *testing.T, h *harness) {
	now := h.put("/a", "1")
	_, err := h.List(h.ctx, "/", store.ListOptions{Revision: now + 1})
	h.wantError(err, store.ErrFutureRevision)
	h.wantKeys(h.list("/", store.ListOptions{Revision: now}), "/a")
}

func testCompactionLists(t *testing.T, h *harness) {
	first := h.put("/a", "1")
	second := h.put("/a", "2")
	third := h.put("/a", "3")
	h.compact(second)
	_, err := h.List(h.ctx, "/", store.ListOptions{Revision: first})
	h.wantError(err, store.ErrCompacted)
	h.wantKV(h.list("/", store.ListOptions{Revision: second}).KVs[0], "/a", "2", second)
	h.wantKV(h.list("/", store.ListOptions{Revision: third}).KVs[0], "/a", "3", third)
	if now := h.revision(); now != third {
		t.Errorf("compaction moved the store from %d to %d", third, now)
	}
}

func testCompactionKeepsCurrent(t *testing.T, h *harness) {
	kept := h.put("/kept", "k")
	h.put("/updated", "1")
	updated := h.put("/updated", "2")
	h.put("/deleted", "1")
	h.delete("/deleted")
	h.put("/reborn", "1")
	h.delete("/reborn")
	reborn := h.put("/reborn", "2")
	h.compact(h.revision())

	result := h.list("/", store.ListOptions{})
	h.wantKeys(result, "/kept", "/reborn", "/updated")
	h.wantKV(result.KVs[0], "/kept", "k", kept)
	h.wantKV(result.KVs[1], "/reborn", "2", reborn)
	h.wantKV(result.KVs[2], "/updated", "2", updated)
	h.putIf("/deleted", "2", 0)
	h.putIf("/kept", "k2", kept)
}

func testCompactionTwice(t *testing.T, h *harness) {
	h.put("/a", "1")
	second := h.put("/a", "2")
	h.compact(second)
	h.compact(second)
	h.compact(second - 1)
	err := h.Compact(h.ctx, second+1)
	h.wantError(err, store.ErrFutureRevision)
}

func testCompactionWatch(t *testing.T, h *harness) {
	first := h.put("/a", "1")
	h.put("/a", "2")
	third := h.put("/a", "3")
	deleted := h.delete("/a")
	fifth := h.put("/b", "5")
	h.compact(deleted)
	h.watch("/", first).wantBroken(store.ErrCompacted)
	h.watch("/", 0).wantBroken(store.ErrCompacted)
	h.watch("/", deleted-2).wantBroken(store.ErrCompacted)
	// The compacted revision itself is still reported.
	w := h.watch("/", third)
	w.want(fmt.Sprintf("delete %q at %d", "/a", deleted), fmt.Sprintf("create %q=%q at %d", "/b", "5", fifth))
	h.watch("/", deleted).want(fmt.Sprintf("create %q=%q at %d", "/b", "5", fifth))
}
