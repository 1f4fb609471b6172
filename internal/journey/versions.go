package journey

import "sync"

// versions stores who wrote the latest versions of objects, and when they were delivered. It is a table indexed by
// revision modulo its size: the store's revisions grow by one, so that each displaces the one a whole table older, and nothing
// need be evicted.
type versions struct {
	entries []version
}

type version struct {
	mu        sync.Mutex
	revision  int64
	uid       uint64 // hash of the uid
	writer    SpanContext
	delivered int64 // time of delivery in nanoseconds since 1970; zero before
}

func newVersions(size int) versions { return versions{entries: make([]version, size)} }

// claim returns the locked entry for a version, cleared if it was an older version's. It returns nil if the entry belongs to a newer version.
func (v versions) claim(uid uint64, revision int64) *version {
	e := &v.entries[uint64(revision)%uint64(len(v.entries))]
	e.mu.Lock()
	switch {
	case e.revision > revision:
		e.mu.Unlock()
		return nil
	case e.revision < revision || e.uid != uid:
		e.revision, e.uid = revision, uid
		e.writer, e.delivered = SpanContext{}, 0
	}
	return e
}

func (v versions) wrote(uid uint64, revision int64, writer SpanContext) {
	if e := v.claim(uid, revision); e != nil {
		e.writer = writer
		e.mu.Unlock()
	}
}

func (v versions) delivered(uid uint64, revision, at int64) {
	if e := v.claim(uid, revision); e != nil {
		if e.delivered == 0 {
			e.delivered = at
		}
		e.mu.Unlock()
	}
}

func (v versions) writer(uid uint64, revision int64) (SpanContext, bool) {
	e := &v.entries[uint64(revision)%uint64(len(v.entries))]
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.revision != revision || e.uid != uid || e.writer.IsZero() {
		return SpanContext{}, false
	}
	return e.writer, true
}

// deliveredAt returns the time of delivery of a version, zero if it was not delivered or its entry was displaced.
func (v versions) deliveredAt(uid uint64, revision int64) int64 {
	e := &v.entries[uint64(revision)%uint64(len(v.entries))]
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.revision != revision || e.uid != uid {
		return 0
	}
	return e.delivered
}
