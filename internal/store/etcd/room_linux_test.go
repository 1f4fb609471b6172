package etcd

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"skiff/internal/store"
)

// Room for the database to grow is taken before it grows, without making it larger; on a full disk writes are refused. That a full disk is survived is
// seen by test/node.
func TestRoom(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "member", "snap", "db")
	if err := os.MkdirAll(filepath.Dir(db), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(db, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := room{dir: dir}
	for _, size := range []int64{7, 10 << 20, 30 << 20, 200 << 20, 7} {
		r.looked = time.Time{}
		if err := r.check(size); err != nil {
			t.Fatalf("a database of %d bytes has no room: %v", size, err)
		}
		info, err := os.Stat(db)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() != 7 {
			t.Errorf("the database has become %d bytes", info.Size())
		}
		if taken := info.Sys().(*syscall.Stat_t).Blocks * 512; r.reserved > 0 && (taken < size+roomAhead/2 || r.reserved < size+roomAhead/2) {
			t.Errorf("a database of %d bytes has %d of the disk, said to be %d", size, taken, r.reserved)
		}
	}
	r.full, r.looked = true, time.Now().Add(time.Hour)
	if err := r.check(7); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a write to a full disk: %v", err)
	}
	r.looked = time.Time{} // there is room again
	if err := r.check(7); err != nil {
		t.Error(err)
	}
	if left, known := diskLeft(dir); !known || left <= 0 {
		t.Errorf("%d bytes are left, %v", left, known)
	}
}
