package etcd

import "skiff/internal/store"

const (
	keyOverhead   = 256 // bytes that a key takes beside itself and its value, roughly
	leaseOverhead = 64
)

// reserve refuses a change that would make the database larger than its quota, or that its disk has no room for. Otherwise it counts the change
// until done is called.
func (e *embedded) reserve(c *change) (done func(), err error) {
	cost := c.cost()
	if cost == 0 {
		return func() {}, nil
	}
	if err := e.room.check(e.backend.Size()); err != nil {
		return nil, err
	}
	underWay, limit := e.underWay.Add(cost), c.limit(e.quota)
	if e.used()+e.uncommitted.Add(cost) > limit {
		// Perhaps only because what was replaced is counted too: the size of the file tells, once all is in it.
		e.backend.ForceCommit()
		e.uncommitted.Store(underWay)
		if e.used()+underWay > limit {
			e.underWay.Add(-cost)
			return nil, store.ErrFull
		}
	}
	return func() { e.underWay.Add(-cost) }, nil
}

// used is how much of the quota is taken. Free pages of a lone member's file are written to again before it grows; etcd's server, which
// has a quota of its own, counts the whole file.
func (e *embedded) used() int64 {
	if _, ok := e.member.(*server); ok {
		return e.backend.Size()
	}
	return e.backend.SizeInUse()
}

// limit is how much the database may hold for a change to be accepted. What is left above it is for changes that matter more.
func (c *change) limit(quota int64) int64 {
	switch c.class {
	case store.Disposable:
		return quota / 100 * 80
	case store.Critical:
		return quota
	}
	return quota / 100 * 95
}

// cost is how much a change may add. Deletions are free, so that a full database can be emptied.
func (c *change) cost() int64 {
	switch c.kind {
	case granted:
		return leaseOverhead
	case written:
		return keyOverhead + int64(len(c.key)+len(c.value))
	}
	return 0
}
