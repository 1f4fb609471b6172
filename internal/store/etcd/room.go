package etcd

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"skiff/internal/store"
)

// etcd ends its process when a write to the disk fails. So that a disk which others have filled is no end, room for what has been accepted is taken in
// advance, and when there is hardly any left, writes are refused: they succeed again when there is.
const (
	// roomAhead is how much the database file may grow beyond what is reserved for it at a time; bolt makes it larger by 16 MiB.
	roomAhead = 32 << 20
	// leastRoom is what is left on the disk when writes are refused: for snapshots, and files of the write-ahead log, which are as large as they will be
	// from the start.
	leastRoom = 2 * walSegmentBytes
	roomEvery = 100 * time.Millisecond
)

var errNoRoom = fmt.Errorf("%w: there is no room left on its disk", store.ErrUnavailable)

// room is that of a database on its disk.
type room struct {
	dir string

	mu       sync.Mutex
	looked   time.Time
	reserved int64 // of the file
	full     bool
}

// check refuses a write if there is no room for it. size is that of the database.
func (r *room) check(size int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.looked) >= roomEvery {
		r.looked = now
		left, known := diskLeft(r.dir)
		r.full = known && left < leastRoom
		if !r.full {
			r.reserve(size)
		}
	}
	if r.full {
		return errNoRoom
	}
	return nil
}

// reserve takes room for the file to grow. Where that is not possible, it may run out.
func (r *room) reserve(size int64) {
	if size+roomAhead/2 <= r.reserved && size+2*roomAhead > r.reserved { // else it has grown, or was made anew
		return
	}
	f, err := os.OpenFile(filepath.Join(r.dir, "member", "snap", "db"), os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if reserveBlocks(f, size+roomAhead) {
		r.reserved = size + roomAhead
	}
}
