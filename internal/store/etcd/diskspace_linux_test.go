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

// Blocks for the database to grow are reserved in advance, without making the file longer; on a full disk writes are refused. test/node tests that
// a full disk is survived.
func TestDiskSpace(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "member", "snap", "db")
	if err := os.MkdirAll(filepath.Dir(db), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(db, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := diskSpace{dir: dir}
	for _, size := range []int64{7, 10 << 20, 30 << 20, 200 << 20, 7} {
		d.checkedAt = time.Time{}
		if err := d.check(size); err != nil {
			t.Fatalf("a database of %d bytes does not fit: %v", size, err)
		}
		info, err := os.Stat(db)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() != 7 {
			t.Errorf("the database has become %d bytes", info.Size())
		}
		if taken := info.Sys().(*syscall.Stat_t).Blocks * 512; d.reserved > 0 && (taken < size+reserveAhead/2 || d.reserved < size+reserveAhead/2) {
			t.Errorf("a database of %d bytes has %d of the disk, said to be %d", size, taken, d.reserved)
		}
	}
	d.full, d.checkedAt = true, time.Now().Add(time.Hour)
	if err := d.check(7); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a write to a full disk: %v", err)
	}
	d.checkedAt = time.Time{} // there is space again
	if err := d.check(7); err != nil {
		t.Error(err)
	}
	if left, known := freeBytes(dir); !known || left <= 0 {
		t.Errorf("%d bytes are left, %v", left, known)
	}
}
