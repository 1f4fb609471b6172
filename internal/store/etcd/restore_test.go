package etcd_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skiff/internal/store"
	"skiff/internal/store/etcd"
)

// save writes a snapshot to a file.
func save(t *testing.T, s store.Store) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Snapshot(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRestore(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) store.Store{"embedded": openEmbedded, "external": openExternal} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			s := open(t)
			old := put(t, s, "/deleted", "x")
			kept := put(t, s, "/kept", "k")
			put(t, s, "/updated", "1")
			updated := put(t, s, "/updated", "2")
			if _, err := s.Delete(ctx, "/deleted", store.AnyRevision); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Put(ctx, "/leased", []byte("l"), store.PutOptions{TTL: time.Second}); err != nil {
				t.Fatal(err)
			}
			if err := s.Compact(ctx, old); err != nil {
				t.Fatal(err)
			}
			before, _ := s.Revision(ctx)
			snapshot := save(t, s)
			put(t, s, "/after", "not in the snapshot")

			dir := filepath.Join(t.TempDir(), "new", "data")
			if err := etcd.Restore(snapshot, dir); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
			for life := range 2 {
				r := embed(t, etcd.EmbedOptions{Dir: dir})
				now, err := r.Revision(ctx)
				if err != nil || now < before+1_000_000 {
					t.Errorf("life %d: restored at revision %d (%v), the snapshot was at %d", life, now, err, before)
				}
				list, err := r.List(ctx, "/", store.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				for _, kv := range list.KVs {
					if kv.Key != "/leased" && kv.Key != "/new" {
						got += fmt.Sprintf("%s=%s@%d ", kv.Key, kv.Value, kv.Revision)
					}
				}
				if want := fmt.Sprintf("/kept=k@%d /updated=2@%d ", kept, updated); got != want {
					t.Errorf("life %d: restored %q, want %q", life, got, want)
				}
				// Nothing goes on across the restore.
				for _, after := range []int64{0, old, before, before + 1} {
					w := r.Watch(ctx, "/", after)
					for batch := range w.Batches() {
						t.Errorf("life %d: watch after %d tells %+v", life, after, batch)
					}
					if !errors.Is(w.Err(), store.ErrCompacted) {
						t.Errorf("life %d: watch after %d: %v", life, after, w.Err())
					}
				}
				if _, err := r.List(ctx, "/", store.ListOptions{Revision: before}); !errors.Is(err, store.ErrCompacted) {
					t.Errorf("life %d: list at %d: %v", life, before, err)
				}
				w := r.Watch(ctx, "/", now)
				if _, err := r.Put(ctx, "/kept", []byte("k"), store.PutOptions{IfRevision: kept}); err != nil {
					t.Errorf("life %d: guarded update: %v", life, err)
				}
				kept = put(t, r, "/kept", "k")
				if batch := <-w.Batches(); len(batch.Events) == 0 || batch.Events[0].Revision != now+1 {
					t.Errorf("life %d: a write after the restore was told as %+v, want revision %d", life, batch, now+1)
				}
				awaitExpired(t, r, "/leased")
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// awaitExpired waits for a key to expire.
func awaitExpired(t *testing.T, s store.Store, key string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, _, err := s.Get(t.Context(), key); errors.Is(err, store.ErrNotFound) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s did not expire", key)
		}
	}
}

func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	s := openEmbedded(t)
	put(t, s, "/a", "1")
	snapshot := save(t, s)
	data, err := os.ReadFile(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "something"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(data)
	damaged[len(damaged)/2] ^= 1
	for _, test := range []struct {
		name, dir, want string
		data            []byte
	}{
		{"a directory in use", full, "not empty", data},
		{"a damaged snapshot", "", "damaged", damaged},
		{"a snapshot cut short", "", "cut short", data[:len(data)-7]},
		{"another file", "", "cut short", []byte("hello")},
		{"no file", "", "no such file", nil},
	} {
		path := filepath.Join(t.TempDir(), "snapshot")
		if test.data != nil {
			if err := os.WriteFile(path, test.data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		parent := t.TempDir()
		dir := test.dir
		if dir == "" {
			dir = filepath.Join(parent, "data")
		}
		if err := etcd.Restore(path, dir); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
		if left, _ := os.ReadDir(parent); len(left) > 0 {
			t.Errorf("%s left %v behind", test.name, left)
		}
	}
}
