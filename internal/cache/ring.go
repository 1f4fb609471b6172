package cache

import (
	"sync/atomic"
)

// ChangeType says what happened to an object, as the watch protocol spells it.
type ChangeType string

const (
	Added    ChangeType = "ADDED"
	Modified ChangeType = "MODIFIED"
	Deleted  ChangeType = "DELETED"
)

// Change is one watch event of a resource. For a deletion Item is the last state with the revision of the deletion.
type Change struct {
	Type ChangeType
	Item *Item
	Prev *Item // the previous version; nil if Added

	unreadPrev *unreadPrev // set for a change of an uncached kind whose previous version is read on demand: see Cache.Complete
	frames     [frameCount]atomic.Pointer[[]byte]
	cold       atomic.Bool // set when nearly all watchers are past the change: nothing derived from it is kept
}

// Initializing reports whether the object was not initialized, before the change or after it: the change is another, or none, to readers that do not ask
// for such objects.
func (c *Change) Initializing() bool {
	return c.Item.Uninitialized || c.Prev != nil && c.Prev.Uninitialized
}

// Frame is an encoding of a watch event, made once for all watchers.
type Frame int

const (
	FrameJSON Frame = iota
	FrameProtobuf
	frameCount
)

// Frame returns the encoded watch event, which make encodes once for all watchers. It serves events of the change's own type; an event whose
// type a selector changes is rare and encoded by its watcher. make returns nil if the event cannot be encoded.
func (c *Change) Frame(f Frame, make func(*Change) []byte) []byte {
	if p := c.frames[f].Load(); p != nil {
		return *p
	}
	b := make(c)
	if b != nil && !c.cold.Load() { // a failure is not kept: the next watcher tries again, and reports it
		c.frames[f].Store(&b)
	}
	return b
}

// cool drops what was derived from the change and from the version that it replaced. A watcher that is so far behind derives it again.
func (c *Change) cool() {
	c.cold.Store(true)
	for f := range c.frames {
		c.frames[f].Store(nil)
	}
	if c.Prev != nil {
		c.Prev.object.Store(nil)
	}
	if c.Type == Deleted {
		c.Item.object.Store(nil)
	}
	if c.unreadPrev != nil {
		if complete := c.unreadPrev.complete.Load(); complete != nil {
			complete.cool()
		}
	}
}

// size returns how many bytes of objects the ring holds for the change.
func (c *Change) size() int {
	size := len(c.Item.raw)
	if c.unreadPrev != nil {
		size += c.unreadPrev.heldBytes
	}
	return size
}

// ring holds the latest changes of one resource, in order. Sequence numbers count changes from the start of the process.
type ring struct {
	changes []*Change // slot of sequence s is s % len
	first   uint64    // sequence of the oldest change held
	next    uint64    // sequence the next change will get
	// floor is the revision up to which changes have been dropped: a watch after an older revision cannot be
	// served from the ring.
	floor  int64
	bytes  int // size of the objects held
	bounds ringBounds
}

// ringBounds bound a ring.
type ringBounds struct {
	min   uint64 // number of latest changes that are held whatever their size
	max   int    // number of changes held at most
	bytes int    // size of the objects held at most, except for the latest min changes
}

var cachedRing = ringBounds{min: ringMin, max: ringMax, bytes: ringBytes}

// The bounds of the ring of a cached kind. They bound both the memory held and how far a slow watcher may fall behind.
const (
	ringMin   = 64
	ringMax   = 8192
	ringBytes = 64 << 20 // size of the objects, without encoded frames
	ringWarm  = 512      // number of latest changes for which derived forms are kept
)

// add appends a change and drops the oldest ones that exceed the bounds.
func (r *ring) add(c *Change) {
	if int(r.next-r.first) == len(r.changes) {
		if len(r.changes) < r.bounds.max {
			r.grow()
		} else {
			r.dropOldest()
		}
	}
	r.changes[r.next%uint64(len(r.changes))] = c
	r.next++
	if r.next-r.first > ringWarm {
		r.at(r.next - ringWarm - 1).cool()
	}
	r.bytes += c.size()
	r.shrink()
}

// shrink drops the oldest changes while the ring holds too many bytes.
func (r *ring) shrink() {
	for r.bytes > r.bounds.bytes && r.next-r.first > r.bounds.min {
		r.dropOldest()
	}
}

func (r *ring) dropOldest() {
	slot := r.first % uint64(len(r.changes))
	r.floor = r.changes[slot].Item.Revision
	r.bytes -= r.changes[slot].size()
	r.changes[slot] = nil
	r.first++
}

func (r *ring) grow() {
	r.resize(max(ringMin, 2*len(r.changes)))
}

func (r *ring) resize(size int) {
	bigger := make([]*Change, size)
	for s := r.first; s < r.next; s++ {
		bigger[s%uint64(size)] = r.changes[s%uint64(len(r.changes))]
	}
	r.changes = bigger
}

// trim drops the changes before the given sequence and releases unused capacity.
func (r *ring) trim(before uint64) {
	for r.first < before && r.first < r.next {
		r.dropOldest()
	}
	want := ringMin
	for want < int(r.next-r.first) {
		want *= 2
	}
	if want*4 <= len(r.changes) {
		r.resize(want)
	}
}

// after returns the sequence of the first change with a revision above the given one, or false if it may have been dropped.
func (r *ring) after(revision int64) (uint64, bool) {
	if revision < r.floor {
		return 0, false
	}
	low, high := r.first, r.next
	for low < high {
		mid := (low + high) / 2
		if r.at(mid).Item.Revision > revision {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low, true
}

func (r *ring) at(seq uint64) *Change { return r.changes[seq%uint64(len(r.changes))] }

// reset drops all changes and sets the floor to a revision.
func (r *ring) reset(revision int64) {
	r.changes, r.first, r.floor, r.bytes = nil, r.next, revision, 0
}
