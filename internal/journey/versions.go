package journey

import "sync"

// versions knows who wrote the last so many versions of objects, and when they were delivered. It is a table addressed by
// revision: the store counts those up one by one, so that a newer revision displaces the one a whole table older, and nothing is
// ever hashed or swept.
type versions struct {
	entries []version
}

type version struct {
	mu        sync.Mutex
	revision  int64
	uid       uint64 // hashed
	writer    SpanContext
	delivered int64 // nanoseconds since 1970; zero if not yet
}

func newVersions(size int) versions { return versions{entries: make([]version, size)} }

// claim locks the entry for a version, emptied if an older one had it. It gives nil if the revision is too old to know.
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

// deliveredAt is zero for a version that was not delivered or is too old to know.
func (v versions) deliveredAt(uid uint64, revision int64) int64 {
	e := &v.entries[uint64(revision)%uint64(len(v.entries))]
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.revision != revision || e.uid != uid {
		return 0
	}
	return e.delivered
}
