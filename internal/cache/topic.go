package cache

import "slices"

// A watcher of the pods of one node, of one object by its name, or of one namespace does not match most changes. In a cluster of thousands of nodes it
// would nearly always be woken for nothing, with thousands of others. So watchers declare a topic, and each topic has its own watcher group and
// a list of the changes that match it.

// Topic is an equality selector that all objects of a watcher match. A change matches it if the object does, or its previous version.
type Topic struct {
	Field int // an index into Item.Fields, or ByName or ByNamespace
	Value string
}

// The values of Topic.Field that are not an index into Item.Fields.
const (
	ByName      = -1
	ByNamespace = -2
)

// Value returns the item's value for a topic's field.
func (it *Item) Value(field int) string {
	switch field {
	case ByName:
		return it.Name
	case ByNamespace:
		return it.Namespace
	}
	return it.Fields[field]
}

// topic is a Topic with at least one watcher.
type topic struct {
	watcherGroup
	selector      Topic
	watchers      int      // number of cursors that follow it
	changes       []uint64 // sequences of the changes that match it, in order
	first         uint64   // changes before this sequence may be missing from changes
	notifyPending bool     // whether it has changes that its watchers have not been notified of
}

// from returns the sequence of the first change at or after a sequence that matches the topic, or next if there is none. If matching changes may have been
// dropped it returns a sequence that the ring no longer holds.
func (t *topic) from(at, next uint64) uint64 {
	if at < t.first {
		return t.first - 1
	}
	if i, _ := slices.BinarySearch(t.changes, at); i < len(t.changes) {
		return t.changes[i]
	}
	return next
}

// add appends the sequence of a change; held is the first sequence that the ring still holds. Older sequences are dropped when they are half of all, which
// bounds both the time spent on dropping and the memory wasted.
func (t *topic) add(seq, held uint64) {
	if n := len(t.changes); n > 0 && n == cap(t.changes) && t.changes[n/2] < held {
		t.dropBefore(held)
	}
	t.changes = append(t.changes, seq)
}

// dropBefore drops the changes before a sequence.
func (t *topic) dropBefore(before uint64) {
	if n, _ := slices.BinarySearch(t.changes, before); n > 0 {
		t.first = t.changes[n-1] + 1
		t.changes = slices.Clone(t.changes[n:])
	}
}

// topics are the topics that have watchers. The cache's lock guards them.
type topics struct {
	followed map[int]map[string]*topic // by field and value
	pending  []*topic                  // the topics with notifyPending set
}

// publish adds the last change of the ring to the topics that it matches.
func (ts *topics) publish(c *Change, r *ring) {
	for field, byValue := range ts.followed {
		now := c.Item.Value(field)
		ts.add(byValue[now], r)
		if c.Prev != nil {
			if before := c.Prev.Value(field); before != now {
				ts.add(byValue[before], r)
			}
		}
	}
}

func (ts *topics) add(t *topic, r *ring) {
	if t == nil {
		return
	}
	t.add(r.next-1, r.first)
	if !t.notifyPending {
		t.notifyPending = true
		ts.pending = append(ts.pending, t)
	}
}

// drainPending calls do for the topics whose watchers have not been notified of a change, and marks them as notified.
func (ts *topics) drainPending(do func(*topic)) {
	for _, t := range ts.pending {
		t.notifyPending = false
		do(t)
	}
	clear(ts.pending)
	ts.pending = ts.pending[:0]
}

func (ts *topics) each(do func(*topic)) {
	for _, byValue := range ts.followed {
		for _, t := range byValue {
			do(t)
		}
	}
}

// join adds a watcher to a topic. A new topic lists changes from the given sequence on.
func (ts *topics) join(selector Topic, next uint64) *topic {
	if ts.followed == nil {
		ts.followed = map[int]map[string]*topic{}
	}
	byValue := ts.followed[selector.Field]
	if byValue == nil {
		byValue = map[string]*topic{}
		ts.followed[selector.Field] = byValue
	}
	t := byValue[selector.Value]
	if t == nil {
		t = &topic{selector: selector, first: next}
		t.init(next)
		byValue[selector.Value] = t
	}
	t.watchers++
	return t
}

// leave removes a watcher from a topic, and the topic with its last watcher.
func (ts *topics) leave(t *topic) {
	if t.watchers--; t.watchers > 0 {
		return
	}
	byValue := ts.followed[t.selector.Field]
	if delete(byValue, t.selector.Value); len(byValue) == 0 {
		delete(ts.followed, t.selector.Field)
	}
}

// Follow limits the cursor to the changes of a topic from now on, or of all if it is nil; it may still return other changes made before the call. With batched set
// changes that come in quick succession are batched if many watch them. It is called once, and Leave must be called when the cursor is no longer needed.
func (cur *Cursor) Follow(selector *Topic, batched bool) {
	c := cur.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if selector != nil {
		cur.topic, cur.joined = c.topics.join(*selector, c.ring.next), c.ring.next
		cur.group = &cur.topic.watcherGroup
	}
	if cur.batched = batched; batched {
		cur.group.batchedWatchers++
	}
}

// Leave ends what Follow began: the cursor no longer counts as a watcher.
func (cur *Cursor) Leave() {
	c := cur.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if cur.batched {
		cur.group.batchedWatchers--
		cur.batched = false
	}
	if cur.topic != nil {
		c.topics.leave(cur.topic)
		cur.topic, cur.group = nil, &c.allWatchers
	}
}
