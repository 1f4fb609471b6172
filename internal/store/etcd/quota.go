package etcd

import "skiff/internal/store"

const (
	keyOverhead   = 256 // about the bytes that a key takes besides itself and its value
	leaseOverhead = 64
)

// reserve returns an error for a change that would make the database larger than its quota, or that does not fit on its disk. Otherwise it counts
// the change until done is called.
func (e *embedded) reserve(c *change) (done func(), err error) {
	cost := c.cost()
	if cost == 0 {
		return func() {}, nil
	}
	if err := e.diskSpace.check(e.backend.Size()); err != nil {
		return nil, err
	}
	inflightBytes, limit := e.inflightBytes.Add(cost), c.limit(e.quota)
	if e.used()+e.uncommittedBytes.Add(cost) > limit {
		// Replaced versions are counted too; after a commit the size of the file includes all writes.
		e.backend.ForceCommit()
		e.uncommittedBytes.Store(inflightBytes)
		if e.used()+inflightBytes > limit {
			e.inflightBytes.Add(-cost)
			return nil, store.ErrFull
		}
	}
	return func() { e.inflightBytes.Add(-cost) }, nil
}

// used returns how many bytes of the quota are used. A singleMember reuses the free pages of its file before it grows; etcd's server, which
// has its own quota, counts the whole file.
func (e *embedded) used() int64 {
	if _, ok := e.member.(*server); ok {
		return e.backend.Size()
	}
	return e.backend.SizeInUse()
}

// limit returns how many bytes the database may hold for a change of this class to be accepted. The rest of the quota is for more important changes.
func (c *change) limit(quota int64) int64 {
	switch c.class {
	case store.Disposable:
		return quota / 100 * 80
	case store.Critical:
		return quota
	}
	return quota / 100 * 95
}

// cost returns how many bytes a change may add. Deletions cost nothing, so that a full database can be emptied.
func (c *change) cost() int64 {
	switch c.kind {
	case kindGrant:
		return leaseOverhead
	case kindPut:
		return keyOverhead + int64(len(c.key)+len(c.value))
	}
	return 0
}
