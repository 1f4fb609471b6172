package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skiff/internal/store"
	"skiff/internal/store/etcd"
)

// TestSnapshotFile: a snapshot, which holds Secrets, is a new file that only its owner may read; an existing file or link is neither replaced
// nor followed.
func TestSnapshotFile(t *testing.T) {
	dir := t.TempDir()
	s, err := etcd.Embed(t.Context(), etcd.EmbedOptions{Dir: filepath.Join(dir, "etcd"), Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(context.Background(), "/registry/secrets/default/s", []byte("v"), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	existing, victim, dangling := filepath.Join(out, "existing"), filepath.Join(out, "victim"), filepath.Join(out, "dangling")
	put(t, existing, "untouched")
	put(t, victim, "untouched")
	link := filepath.Join(out, "link")
	if err := errors.Join(os.Symlink(victim, link), os.Symlink(filepath.Join(out, "nothing"), dangling)); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{existing, link, dangling} {
		if _, err := SaveSnapshot(t.Context(), dir, file); err == nil || !strings.Contains(err.Error(), "exists: name another file") {
			t.Errorf("saving to %s gave %v", file, err)
		}
	}
	if read(t, existing) != "untouched" || read(t, victim) != "untouched" {
		t.Error("a file was overwritten")
	}
	if _, err := os.Lstat(filepath.Join(out, "nothing")); err == nil {
		t.Error("a link was followed")
	}
	file := filepath.Join(out, "new")
	size, err := SaveSnapshot(t.Context(), dir, file)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(file); err != nil || info.Mode() != 0o600 || info.Size() != size {
		t.Errorf("the snapshot: %v, %v, said to be %d bytes", info, err, size)
	}
	if _, err := RestoreSnapshot(dir, file); err != nil {
		t.Error(err)
	}
}
