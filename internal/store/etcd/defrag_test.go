package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/storage/schema"

	"skiff/internal/store"
)

// fillAndEmpty writes many keys, deletes most of them, and compacts.
func fillAndEmpty(t *testing.T, s *Store, keys, kept int) {
	t.Helper()
	value := bytes.Repeat([]byte("event "), 500)
	inParallel(t, keys, func(i int) error {
		_, err := s.Put(t.Context(), fmt.Sprintf("/events/%06d", i), value, store.PutOptions{})
		return err
	})
	inParallel(t, keys-kept, func(i int) error {
		_, err := s.Delete(t.Context(), fmt.Sprintf("/events/%06d", i), store.AnyRevision)
		return err
	})
	now, err := s.Revision(t.Context())
	if err == nil {
		err = s.Compact(t.Context(), now)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func inParallel(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 64 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// slowest measures the duration of the slowest call.
type slowest struct{ nanoseconds, calls atomic.Int64 }

func (s *slowest) call(f func()) {
	began := time.Now()
	f()
	took := int64(time.Since(began))
	s.calls.Add(1)
	for {
		old := s.nanoseconds.Load()
		if took <= old || s.nanoseconds.CompareAndSwap(old, took) {
			return
		}
	}
}

func (s *slowest) take() time.Duration { return time.Duration(s.nanoseconds.Swap(0)) }

// TestShrinks fills a database and empties it again: its file is defragmented while others read and write, a list and a snapshot
// that had begun before are not affected, and nothing is lost.
func TestShrinks(t *testing.T) {
	for _, test := range []struct {
		name   string
		listen bool
	}{{"lone", false}, {"server", true}} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			opts := EmbedOptions{Dir: dir, defrag: defragPolicy{above: 16 << 20, every: 50 * time.Millisecond}}
			if test.listen {
				socket, err := os.MkdirTemp("", "etcd")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { os.RemoveAll(socket) })
				opts.Listen = "unix:" + filepath.Join(socket, "s")
			}
			s, err := Embed(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			const keys, kept = 20_000, 500
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var clients sync.WaitGroup
			var reads, writes slowest
			written := make([]int, 4) // how often each writer has written
			for w := range written {
				clients.Go(func() {
					for i := 1; ctx.Err() == nil; i++ {
						writes.call(func() {
							if _, err := s.Put(t.Context(), fmt.Sprintf("/writer/%d", w), fmt.Append(nil, i), store.PutOptions{IfRevision: store.AnyRevision}); err != nil {
								t.Error(err)
							}
						})
						written[w] = i
						time.Sleep(5 * time.Millisecond)
					}
				})
			}
			clients.Go(func() {
				for ctx.Err() == nil {
					reads.call(func() {
						if _, err := s.List(t.Context(), "/writer/", store.ListOptions{}); err != nil {
							t.Error(err)
						}
					})
					time.Sleep(time.Millisecond)
				}
			})
			fillAndEmpty(t, s, keys, kept)
			reads.take()
			writes.take()
			deadline := time.Now().Add(time.Minute)
			for size := int64(1 << 40); size > 32<<20; time.Sleep(20 * time.Millisecond) {
				info, err := os.Stat(databaseIn(dir))
				if err != nil {
					t.Fatal(err)
				}
				if size = info.Size(); time.Now().After(deadline) {
					t.Fatalf("the database still has %d bytes, of which %d are in use", size, s.engine.(*embedded).backend.SizeInUse())
				}
			}
			time.Sleep(100 * time.Millisecond) // of going on
			t.Logf("slowest write %v, slowest read %v", writes.take(), reads.take())
			if l, ok := s.engine.(*embedded).member.(*singleMember); ok {
				swap := time.Duration(l.lastSwap.Load())
				t.Logf("writes waited %v for the swap", swap)
				if swap == 0 || swap > 500*time.Millisecond {
					t.Errorf("writes waited %v for the swap", swap)
				}
			}
			stop()
			clients.Wait()
			check := func(s *Store) {
				t.Helper()
				for w, i := range written {
					if kv, _, err := s.Get(t.Context(), fmt.Sprintf("/writer/%d", w)); err != nil || string(kv.Value) != fmt.Sprint(i) {
						t.Errorf("writer %d wrote %d, and there is %q, %v", w, i, kv.Value, err)
					}
				}
				if list, err := s.List(t.Context(), "/events/", store.ListOptions{}); err != nil || len(list.KVs) != kept {
					t.Errorf("%d keys are left, %v; want %d", len(list.KVs), err, kept)
				}
			}
			check(s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if left, _ := filepath.Glob(databaseIn(dir) + ".*"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if s, err = Embed(t.Context(), opts); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			check(s)
		})
	}
}

func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d of %d: %q, want %q", i, len(b), a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(a), len(b))
}

// TestDefragmentKeepsEverything compares all keys, revisions, leases and events before and after, in the open store, when it is opened
// again, and when what came after is made again from the log.
func TestDefragmentKeepsEverything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := embedDir(t, dir)
	for i := range 500 {
		opts := store.PutOptions{IfRevision: store.AnyRevision}
		if i%3 == 0 {
			opts.TTL = time.Duration(1+i%4) * time.Hour
		}
		if _, err := s.Put(t.Context(), fmt.Sprint("/", i%70), bytes.Repeat([]byte{byte(i)}, i*10), opts); err != nil {
			t.Fatal(err)
		}
		if i%7 == 0 {
			if _, err := s.Delete(t.Context(), fmt.Sprint("/", i%70), store.AnyRevision); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := everything(t, s)
	// A reader that began before keeps what it reads.
	reading := s.engine.(*embedded).backend.ConcurrentReadTx()
	reading.RLock()
	read := func() string {
		keys, values := reading.UnsafeRange(schema.Key, revisionKey(0), afterLastRevision, 0)
		return fmt.Sprint(keys, values)
	}
	before := read()
	var snapshot bytes.Buffer
	for range 3 {
		if err := s.Defragment(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := everything(t, s); got != want {
			reading.RUnlock()
			t.Fatalf("it is not the same after defragmentation: first difference %s", firstDifference(got, want))
		}
	}
	after := read()
	reading.RUnlock()
	if len(before) < 100 || before != after {
		t.Error("a reader that began before does not read what it did")
	}
	if err := s.Snapshot(t.Context(), &snapshot); err != nil || snapshot.Len() == 0 {
		t.Errorf("snapshot of %d bytes, %v", snapshot.Len(), err)
	}
	// Killed: the file of the database is as it was, and the log has what follows.
	killed := t.TempDir()
	copyFile(t, databaseIn(dir), databaseIn(killed))
	if _, err := s.Put(t.Context(), "/last", []byte("v"), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	want = everything(t, s)
	logs, _ := filepath.Glob(filepath.Join(logIn(dir), "*.wal"))
	for _, file := range logs {
		copyFile(t, file, filepath.Join(logIn(killed), filepath.Base(file)))
	}
	if got := everything(t, embedDir(t, killed)); got != want {
		t.Error("it is not the same when killed after defragmentation")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := everything(t, embedDir(t, dir)); got != want {
		t.Error("it is not the same when opened again")
	}
}

// TestDefragmentDuringCompaction compacts while the database is copied: what a compaction removes must not come back with the copy.
func TestDefragmentDuringCompaction(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := embedDir(t, dir)
	ctx, stop := context.WithCancel(t.Context())
	var shrinking sync.WaitGroup
	defragmentations := 0
	shrinking.Go(func() {
		for ctx.Err() == nil {
			if err := s.Defragment(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			defragmentations++
		}
	})
	var last int64
	for i := range 600 {
		var err error
		if last, err = s.Put(t.Context(), fmt.Sprint("/", i%5), []byte(fmt.Sprint(i)), store.PutOptions{IfRevision: store.AnyRevision}); err != nil {
			t.Fatal(err)
		}
		if i%20 == 0 {
			if err := s.Compact(t.Context(), last); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	stop()
	shrinking.Wait()
	e := s.engine.(*embedded)
	if err := awaitCompaction(t.Context(), e.backend); err != nil {
		t.Fatal(err)
	}
	tx := e.backend.ConcurrentReadTx()
	tx.RLock()
	left, _ := tx.UnsafeRange(schema.Key, revisionKey(0), afterLastRevision, 0)
	tx.RUnlock()
	if len(left) != 5 || defragmentations < 3 {
		t.Errorf("after %d defragmentations %d revisions are left, want 5", defragmentations, len(left))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if list, err := embedDir(t, dir).List(t.Context(), "/", store.ListOptions{}); err != nil || len(list.KVs) != 5 {
		t.Errorf("%d keys, %v", len(list.KVs), err)
	}
}

// TestDefragmentWithoutDiskSpace does not begin to copy a database that does not fit on the disk.
func TestDefragmentWithoutDiskSpace(t *testing.T) {
	t.Parallel()
	if err := checkSpaceFor(t.TempDir(), 1<<60); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a copy of an exabyte: %v", err)
	}
	if err := checkSpaceFor(t.TempDir(), 1<<10); err != nil {
		t.Errorf("a copy of a kilobyte: %v", err)
	}
}
