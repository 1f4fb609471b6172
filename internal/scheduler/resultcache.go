package scheduler

import (
	"sync"
	"time"

	"skiff/internal/scheduling"
)

const (
	// maxCachedNodes bounds the cache: the number of nodes, each counted once for every pod shape that it has results for.
	maxCachedNodes = 100000
	// maxCachedScores is how many score plugins of a profile are cached; others are called every time.
	maxCachedScores = 32
	// cacheTTL is how long results are kept that no pod uses.
	cacheTTL = 30 * time.Second
)

// resultCache caches what plugins said about nodes for pods that are equal in everything that plugins read. A result is valid as long as the node is
// the same object (see scheduling.Node), so no change can be overlooked, and decisions with the cache are those without it, only faster.
type resultCache struct {
	mu       sync.Mutex // guards the map; the entries belong to the cycle
	entries  map[shapeKey]*cachedResults
	nodes    int // over all entries
	disabled bool
}

// shapeKey identifies pods that get the same results.
type shapeKey struct {
	profile  *profile
	shape    string
	uncached uint64 // the filter plugins whose results are not cached, a bit each: a plugin may be one of them for some pods of a shape only
}

// cachedResults holds the results for the nodes of a snapshot, by position, for one pod shape.
type cachedResults struct {
	nodes   []*scheduling.Node // the nodes that the results are about; nil: no result
	refused []*verdict         // refusal by the first of the plugins that look only at the node; nil: none
	scored  []uint32           // the score plugins whose raw score is cached, a bit each
	raw     [maxCachedScores][]int64
	used    time.Time
}

// of returns the entry for the pod of a search.
func (m *resultCache) of(s *search) *cachedResults {
	size := len(s.snapshot.Nodes())
	if m.disabled {
		return newCachedResults(size)
	}
	key := shapeKey{profile: s.profile, shape: s.snapshot.Signature(s.pod)}
	for i := range s.checks {
		if k := &s.checks[i]; !k.cached {
			key.uncached |= 1 << k.index
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.entries[key]
	if r == nil || len(r.nodes) != size {
		// Positions have shifted, or it is the first pod of its shape.
		if r != nil {
			m.drop(key)
		}
		m.makeRoom(size)
		r = newCachedResults(size)
		if m.entries == nil {
			m.entries = map[shapeKey]*cachedResults{}
		}
		m.entries[key] = r
		m.nodes += size
	}
	r.used = time.Now()
	return r
}

func newCachedResults(size int) *cachedResults {
	return &cachedResults{nodes: make([]*scheduling.Node, size), refused: make([]*verdict, size), scored: make([]uint32, size)}
}

// scores returns the raw scores of a plugin, by position.
func (r *cachedResults) scores(plugin int) []int64 {
	if r.raw[plugin] == nil {
		r.raw[plugin] = make([]int64, len(r.nodes))
	}
	return r.raw[plugin]
}

// makeRoom drops the least recently used entries until there is room.
func (m *resultCache) makeRoom(size int) {
	for len(m.entries) > 0 && m.nodes+size > maxCachedNodes {
		var oldest shapeKey
		var used time.Time
		for key, r := range m.entries {
			if used.IsZero() || r.used.Before(used) {
				oldest, used = key, r.used
			}
		}
		m.drop(oldest)
	}
}

// expire drops entries that were not used for cacheTTL.
func (m *resultCache) expire(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, r := range m.entries {
		if now.Sub(r.used) > cacheTTL {
			m.drop(key)
		}
	}
}

func (m *resultCache) drop(key shapeKey) {
	m.nodes -= len(m.entries[key].nodes)
	delete(m.entries, key)
}
