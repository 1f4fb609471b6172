package cache

import (
	"context"
	"errors"
)

// ErrTooOld is returned when a cursor's position is no longer in memory: the changes may still be in the store's history.
var ErrTooOld = errors.New("the changes asked for are no longer in memory")

// ErrRemoved is returned to cursors of a cache that was removed, once they have returned all its changes.
var ErrRemoved = errors.New("the resource is no longer served")

// Cursor is a reader's position in the stream of a resource's changes.
type Cursor struct {
	c     *Cache
	next  uint64
	epoch uint64
	from  int64 // the reader has all changes up to this revision, which may be ahead of the cache
	seen  int64 // every change before this revision has been returned; more may come of the revision itself, because one revision of the store may change many objects

	group   *watcherGroup
	batched bool   // the reader lets changes in quick succession be batched
	topic   *topic // nil for a reader of all changes
	joined  uint64 // the sequence from which on the topic lists all its changes
}

// After returns a cursor at the first change after a revision, or ErrTooOld.
func (c *Cache) After(revision int64) (*Cursor, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	next, ok := c.ring.after(revision)
	if !ok {
		return nil, ErrTooOld
	}
	return &Cursor{c: c, next: next, epoch: c.epoch, from: revision, seen: revision, group: &c.allWatchers}, nil
}

// SnapshotAndCursor returns the current state and a cursor at the first change after it. The changes are those of all objects, initialized or not: see
// Change.Initializing.
func (c *Cache) SnapshotAndCursor() (Snapshot, *Cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Snapshot{Revision: c.revision(), tree: c.ordered.Clone(), unreadable: c.unreadable}, c.cursor()
}

// SnapshotUninitializedAndCursor is SnapshotAndCursor with the objects that still wait for their initializers.
func (c *Cache) SnapshotUninitializedAndCursor() (Snapshot, *Cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Snapshot{Revision: c.revision(), tree: c.treeWithUninitialized(), unreadable: c.unreadable}, c.cursor()
}

// cursor returns a cursor at the first change after the current state. The caller holds the lock.
func (c *Cache) cursor() *Cursor {
	revision := c.revision()
	cursor := &Cursor{c: c, next: c.ring.next, epoch: c.epoch, seen: revision, group: &c.allWatchers}
	if c.Kind.Uncached {
		// The reader lists from the store, which shows all changes of that revision; the cache may have applied only some of the keys that expired in it.
		cursor.from = revision
	}
	return cursor
}

// Next appends the changes since the last call to buf, up to its capacity (at least 64), and waits for the first if there are none.
// It returns ErrTooOld if the reader was too slow.
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

// take appends the available changes to buf and returns the channel that is closed when there may be more.
func (cur *Cursor) take(buf []*Change) ([]*Change, <-chan struct{}, error) {
	c := cur.c
	c.mu.RLock()
	defer c.mu.RUnlock()
	if cur.epoch != c.epoch {
		return nil, nil, ErrTooOld
	}
	cur.catchUp()
	for limit := max(cap(buf), 64); len(buf) < limit; {
		seq := cur.nextSequence()
		if seq < c.ring.first {
			return nil, nil, ErrTooOld
		}
		if seq >= cur.endSequence() {
			break
		}
		change := c.ring.at(seq)
		cur.next = seq + 1
		if change.Item.Revision <= cur.from {
			continue
		}
		buf = append(buf, change)
		cur.seen = change.Item.Revision
	}
	if c.removed && len(buf) == 0 {
		return nil, nil, ErrRemoved
	}
	if cur.batched {
		return buf, cur.group.batched.wait(), nil
	}
	return buf, cur.group.changed.wait(), nil
}

// nextSequence returns the sequence of the next change for this reader, or the ring's next sequence if there is none. The caller holds the cache's lock.
func (cur *Cursor) nextSequence() uint64 {
	if cur.topic == nil || cur.next < cur.joined {
		return cur.next
	}
	return cur.topic.from(cur.next, cur.c.ring.next)
}

// endSequence returns the first sequence that the reader may not have yet. The caller holds the cache's lock.
func (cur *Cursor) endSequence() uint64 {
	switch {
	case !cur.batched:
		return cur.c.ring.next
	case cur.next < cur.joined: // before the reader joined the batched watchers
		return max(cur.joined, cur.group.flushedTo)
	}
	return cur.group.flushedTo
}

// Seen returns the revision up to which the cursor has returned everything; a bookmark may carry it.
func (cur *Cursor) Seen() int64 {
	c := cur.c
	c.mu.RLock()
	defer c.mu.RUnlock()
	cur.catchUp()
	return cur.seen
}

// catchUp moves the cursor over changes of other topics and over revisions that changed nothing of this resource. The caller holds the cache's lock.
func (cur *Cursor) catchUp() {
	if c := cur.c; cur.epoch == c.epoch && cur.nextSequence() == c.ring.next {
		cur.next = c.ring.next
		cur.seen = max(cur.seen, c.revision())
	}
}
