package etcd

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"skiff/internal/store"
)

// etcd ends its process when a write to the disk fails. To survive a disk that others have filled, blocks for the accepted writes are reserved in
// advance, and writes are refused while the disk has less than minFreeBytes.
const (
	// reserveAhead is how many bytes are reserved beyond the size of the database file; bolt grows it by 16 MiB at a time.
	reserveAhead = 32 << 20
	// minFreeBytes is the free disk space below which writes are refused. It is left for snapshots and for files of the write-ahead log, which are
	// preallocated.
	minFreeBytes    = 2 * walSegmentBytes
	checkSpaceEvery = 100 * time.Millisecond
)

var errNoDiskSpace = fmt.Errorf("%w: there is no room left on its disk", store.ErrUnavailable)

// diskSpace reserves and checks the disk space of a database.
type diskSpace struct {
	dir string

	mu        sync.Mutex
	checkedAt time.Time
	reserved  int64 // size up to which blocks of the database file are reserved
	full      bool  // whether less than minFreeBytes were free at checkedAt
}

// check returns an error if the disk is full. size is the size of the database.
func (d *diskSpace) check(size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); now.Sub(d.checkedAt) >= checkSpaceEvery {
		d.checkedAt = now
		left, known := freeBytes(d.dir)
		d.full = known && left < minFreeBytes
		if !d.full {
			d.reserve(size)
		}
	}
	if d.full {
		return errNoDiskSpace
	}
	return nil
}

// reserve reserves blocks for the database file to grow. Where that is not possible, the disk may run out of space.
func (d *diskSpace) reserve(size int64) {
	if size+reserveAhead/2 <= d.reserved && size+2*reserveAhead > d.reserved { // otherwise the file has grown, or was replaced
		return
	}
	f, err := os.OpenFile(filepath.Join(d.dir, "member", "snap", "db"), os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if reserveBlocks(f, size+reserveAhead) {
		d.reserved = size + reserveAhead
	}
}
