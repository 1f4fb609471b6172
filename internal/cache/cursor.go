package cache

import (
	"context"
	"errors"
)

// ErrTooOld says that a cursor's place is no longer in memory: the changes may still be in the store's history.
var ErrTooOld = errors.New("the changes asked for are no longer in memory")

// Cursor is a place in the stream of a resource's changes.
type Cursor struct {
	c     *Cache
	next  uint64
	epoch uint64
	from  int64 // changes up to this revision are known to the reader, who may be ahead of the cache
	seen  int64 // every change up to this revision has been returned; of this one there may be more, as a change of the store may be about many objects

	audience *audience
	patient  bool
	topic    *topic // nil for a reader of all changes
	joined   uint64 // from this sequence on the topic knows of all its changes
}

// After returns a cursor at the first change after a revision, or ErrTooOld.
func (c *Cache) After(revision int64) (*Cursor, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	next, ok := c.ring.after(revision)
	if !ok {
		return nil, ErrTooOld
	}
	return &Cursor{c: c, next: next, epoch: c.epoch, from: revision, seen: revision, audience: &c.everyone}, nil
}

// SnapshotAndCursor pins the current state and a cursor at the first change after it.
func (c *Cache) SnapshotAndCursor() (Snapshot, *Cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	revision := c.revision()
	cursor := &Cursor{c: c, next: c.ring.next, epoch: c.epoch, seen: revision, audience: &c.everyone}
	if c.Kind.Uncached {
		// The state is read from the store, which shows all changes of that revision; of keys that expired together the cache may have taken in a part.
		cursor.from = revision
	}
	return Snapshot{Revision: revision, tree: c.ordered.Clone()}, cursor
}

// Next appends the changes that have happened to buf, at most its capacity (or a few if it has none), waiting for the
// first if there are none. ErrTooOld means the reader was too slow.
func (cur *Cursor) Next(ctx context.Context, buf []*Change) ([]*Change, error) {
	for {
		changes, wait, err := cur.take(buf)
		if err != nil || len(changes) > 0 {
			return changes, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (cur *Cursor) take(buf []*Change) ([]*Change, <-chan struct{}, error) {
	c := cur.c
	c.mu.RLock()
	defer c.mu.RUnlock()
	if cur.epoch != c.epoch {
		return nil, nil, ErrTooOld
	}
	cur.catchUp()
	for limit := max(cap(buf), 64); len(buf) < limit; {
		due := cur.due()
		if due < c.ring.first {
			return nil, nil, ErrTooOld
		}
		if due >= cur.end() {
			break
		}
		change := c.ring.at(due)
		cur.next = due + 1
		if change.Item.Revision <= cur.from {
			continue
		}
		buf = append(buf, change)
		cur.seen = change.Item.Revision
	}
	if cur.patient {
		return buf, cur.audience.gathered.wait(), nil
	}
	return buf, cur.audience.changed.wait(), nil
}

// due is the sequence of the next change that the reader is to have, or the one that the next change of all will get. The cache's lock is held, here and below.
func (cur *Cursor) due() uint64 {
	if cur.topic == nil || cur.next < cur.joined {
		return cur.next
	}
	return cur.topic.from(cur.next, cur.c.ring.next)
}

// end is the sequence that the reader is not to have yet.
func (cur *Cursor) end() uint64 {
	switch {
	case !cur.patient:
		return cur.c.ring.next
	case cur.next < cur.joined: // before it had to be patient
		return max(cur.joined, cur.audience.told)
	}
	return cur.audience.told
}

// Seen is the revision up to which the cursor has returned everything; a bookmark may carry it.
func (cur *Cursor) Seen() int64 {
	c := cur.c
	c.mu.RLock()
	defer c.mu.RUnlock()
	cur.catchUp()
	return cur.seen
}

// catchUp moves the cursor over changes that do not concern it, and over revisions that changed nothing here.
func (cur *Cursor) catchUp() {
	if c := cur.c; cur.epoch == c.epoch && cur.due() == c.ring.next {
		cur.next = c.ring.next
		cur.seen = max(cur.seen, c.revision())
	}
}
