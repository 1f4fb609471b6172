package cache

import "slices"

// A watcher that follows the pods of one node, or one object by its name, or one namespace, has nothing to do with most changes. In a cluster of thousands of nodes it
// would be woken for nothing nearly always, with thousands of others. So watchers say what they follow, and those of one topic have a bell of their own and
// a list of the changes that are about it.

// Topic is an equality that all objects meet that a watcher follows. Objects are about it also in the change that has them cease to meet it.
type Topic struct {
	Field int // an index into Item.Fields, or one of those below
	Value string
}

const (
	ByName      = -1
	ByNamespace = -2
)

// Value is what the item has for a topic's field.
func (it *Item) Value(field int) string {
	switch field {
	case ByName:
		return it.Name
	case ByNamespace:
		return it.Namespace
	}
	return it.Fields[field]
}

// topic is a topic that somebody follows.
type topic struct {
	audience
	is      Topic
	members int
	changes []uint64 // sequences of the changes about it, in order
	first   uint64   // changes before this one may be missing from these
	news    bool     // since it was last announced
}

// from is the sequence of the first change that is about the topic at or after a sequence, or next if there is none. It is one that is no longer held if some of
// them have been forgotten.
func (t *topic) from(at, next uint64) uint64 {
	if at < t.first {
		return t.first - 1
	}
	if i, _ := slices.BinarySearch(t.changes, at); i < len(t.changes) {
		return t.changes[i]
	}
	return next
}

// add takes note of a change; held is the first that the ring still has. What it has no longer goes when there is as much of it as of the rest, so that both
// the time that takes and what is kept in vain are bounded.
func (t *topic) add(seq, held uint64) {
	if n := len(t.changes); n > 0 && n == cap(t.changes) && t.changes[n/2] < held {
		t.forget(held)
	}
	t.changes = append(t.changes, seq)
}

// forget forgets changes that came before a sequence.
func (t *topic) forget(before uint64) {
	if n, _ := slices.BinarySearch(t.changes, before); n > 0 {
		t.first = t.changes[n-1] + 1
		t.changes = slices.Clone(t.changes[n:])
	}
}

// topics are those that somebody follows. The cache's lock guards them.
type topics struct {
	followed map[int]map[string]*topic // by field and value
	due      []*topic                  // those with news
}

// publish tells the topics that a change is about of it, which is the last in the ring.
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
	if !t.news {
		t.news = true
		ts.due = append(ts.due, t)
	}
}

// eachDue is about the topics with news, which are known afterwards.
func (ts *topics) eachDue(do func(*topic)) {
	for _, t := range ts.due {
		t.news = false
		do(t)
	}
	clear(ts.due)
	ts.due = ts.due[:0]
}

func (ts *topics) each(do func(*topic)) {
	for _, byValue := range ts.followed {
		for _, t := range byValue {
			do(t)
		}
	}
}

// join finds a topic, or begins to follow it with the change that gets the given sequence.
func (ts *topics) join(is Topic, next uint64) *topic {
	if ts.followed == nil {
		ts.followed = map[int]map[string]*topic{}
	}
	byValue := ts.followed[is.Field]
	if byValue == nil {
		byValue = map[string]*topic{}
		ts.followed[is.Field] = byValue
	}
	t := byValue[is.Value]
	if t == nil {
		t = &topic{is: is, first: next}
		t.open(next)
		byValue[is.Value] = t
	}
	t.members++
	return t
}

func (ts *topics) leave(t *topic) {
	if t.members--; t.members > 0 {
		return
	}
	byValue := ts.followed[t.is.Field]
	if delete(byValue, t.is.Value); len(byValue) == 0 {
		delete(ts.followed, t.is.Field)
	}
}

// Follow has the cursor return the changes of a topic alone from here on, or all if it is nil; of those before it may return others, too. A patient reader lets
// changes that come in quick succession gather where many follow them. It is called once, and Leave when the cursor is no longer needed.
func (cur *Cursor) Follow(is *Topic, patient bool) {
	c := cur.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if is != nil {
		cur.topic, cur.joined = c.topics.join(*is, c.ring.next), c.ring.next
		cur.audience = &cur.topic.audience
	}
	if cur.patient = patient; patient {
		cur.audience.patient++
	}
}

// Leave ends what Follow began.
func (cur *Cursor) Leave() {
	c := cur.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if cur.patient {
		cur.audience.patient--
		cur.patient = false
	}
	if cur.topic != nil {
		c.topics.leave(cur.topic)
		cur.topic, cur.audience = nil, &c.everyone
	}
}
