package cache

import (
	"sync/atomic"
)

// ChangeType is what happened to an object, in the words of the watch protocol.
type ChangeType string

const (
	Added    ChangeType = "ADDED"
	Modified ChangeType = "MODIFIED"
	Deleted  ChangeType = "DELETED"
)

// Change is one event of a resource. For a deletion Item is the last state with the revision of the deletion.
type Change struct {
	Type ChangeType
	Item *Item
	Prev *Item // the version before; nil if Added

	unread *unread // of an uncached kind, until the version before has been read: see Cache.Complete
	frames [frameCount]atomic.Pointer[[]byte]
	cold   atomic.Bool // nearly all watchers are past it: nothing derived from it is kept
}

// Frame is an encoding of a watch event, made once for all watchers.
type Frame int

const (
	FrameJSON Frame = iota
	FrameProtobuf
	frameCount
)

// Frame returns the event as it travels to watchers under the given type, encoded once. The type differs from the change's where a
// selector makes one object come or go: such events are rare and encoded for the occasion. make returns nil if it cannot be encoded.
func (c *Change) Frame(f Frame, make func(*Change) []byte) []byte {
	if p := c.frames[f].Load(); p != nil {
		return *p
	}
	b := make(c)
	if b != nil && !c.cold.Load() { // what could not be encoded is tried, and told of, again
		c.frames[f].Store(&b)
	}
	return b
}

// cool lets go of what was derived from the change and from the version that it replaced. Who is so far behind makes it again.
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
	if c.unread != nil {
		if complete := c.unread.complete.Load(); complete != nil {
			complete.cool()
		}
	}
}

// size is how many bytes of objects the ring holds for the change.
func (c *Change) size() int {
	size := len(c.Item.raw)
	if c.unread != nil {
		size += c.unread.held
	}
	return size
}

// ring holds the latest changes of one resource, in order. Sequence numbers count changes from the start of the process.
type ring struct {
	changes []*Change // slot of sequence s is s % len
	first   uint64    // sequence of the oldest change held
	next    uint64    // sequence the next change will get
	// floor is the revision up to which changes have been forgotten: a watch after an older revision cannot be
	// served from here.
	floor  int64
	bytes  int // of the objects held
	bounds ringBounds
}

// ringBounds are how many changes a ring holds at most, and how many bytes of objects, but for the latest min changes.
type ringBounds struct {
	min   uint64
	max   int
	bytes int
}

var cachedRing = ringBounds{min: ringMin, max: ringMax, bytes: ringBytes}

// These bound both the memory held and how far a slow watcher may fall behind.
const (
	ringMin   = 64
	ringMax   = 8192
	ringBytes = 64 << 20 // of objects; encoded frames come on top. The latest ringMin changes are held whatever their size.
	ringWarm  = 512      // of the latest changes what was derived is kept as well
)

func (r *ring) add(c *Change) {
	if int(r.next-r.first) == len(r.changes) {
		if len(r.changes) < r.bounds.max {
			r.grow()
		} else {
			r.forgetOldest()
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

// shrink forgets the oldest changes while the ring holds too many bytes.
func (r *ring) shrink() {
	for r.bytes > r.bounds.bytes && r.next-r.first > r.bounds.min {
		r.forgetOldest()
	}
}

func (r *ring) forgetOldest() {
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

// trim forgets changes up to the given sequence and gives back the room.
func (r *ring) trim(before uint64) {
	for r.first < before && r.first < r.next {
		r.forgetOldest()
	}
	want := ringMin
	for want < int(r.next-r.first) {
		want *= 2
	}
	if want*4 <= len(r.changes) {
		r.resize(want)
	}
}

// after returns the sequence of the first change with a revision above the given one, or false if that may be forgotten.
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

// reset forgets everything up to a revision.
func (r *ring) reset(revision int64) {
	r.changes, r.first, r.floor, r.bytes = nil, r.next, revision, 0
}
