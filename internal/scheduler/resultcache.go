package scheduler

import (
	"sync"
	"time"

	"skiff/internal/scheduling"
)

const (
	// maxRememberedNodes bounds what is remembered: so many nodes, each counted once for every sort of pods it is remembered for.
	maxRememberedNodes = 100000
	// maxRememberedScores is how many score plugins of a profile are remembered; more are asked every time.
	maxRememberedScores = 32
	// memoryFades is how long what nobody asks for is remembered.
	memoryFades = 30 * time.Second
)

// memory is what was found out about nodes for pods that are alike in everything plugins look at. An answer holds as long as the node is the
// very same object (see scheduling.Node), so nothing that changes can be overlooked, and deciding with memory is deciding without it, only
// faster.
type memory struct {
	mu    sync.Mutex // of this; what is remembered belongs to the cycle
	sorts map[sortKey]*remembered
	nodes int // over all sorts
	off   bool
}

// sortKey is a sort of pods.
type sortKey struct {
	profile *profile
	alike   string
}

// remembered is what is known of the nodes, by position in the snapshot, for one sort of pods.
type remembered struct {
	nodes   []*scheduling.Node // what the answers are about; nil: nothing is known
	refused []*verdict         // by the first of the plugins that look at nothing but the node; nil: none
	scored  []uint32           // the score plugins whose raw score is known, a bit each
	raw     [maxRememberedScores][]int64
	used    time.Time
}

// of is what is known for a pod of the search.
func (m *memory) of(s *search) *remembered {
	size := len(s.snapshot.Nodes())
	if m.off {
		return newRemembered(size)
	}
	key := sortKey{s.profile, s.snapshot.Alike(s.pod)}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.sorts[key]
	if r == nil || len(r.nodes) != size {
		// Positions have shifted, or it is the first of its sort.
		if r != nil {
			m.drop(key)
		}
		m.makeRoom(size)
		r = newRemembered(size)
		if m.sorts == nil {
			m.sorts = map[sortKey]*remembered{}
		}
		m.sorts[key] = r
		m.nodes += size
	}
	r.used = time.Now()
	return r
}

func newRemembered(size int) *remembered {
	return &remembered{nodes: make([]*scheduling.Node, size), refused: make([]*verdict, size), scored: make([]uint32, size)}
}

// scores are the raw scores of a plugin, by position.
func (r *remembered) scores(plugin int) []int64 {
	if r.raw[plugin] == nil {
		r.raw[plugin] = make([]int64, len(r.nodes))
	}
	return r.raw[plugin]
}

// makeRoom forgets what was not used for longest until there is room.
func (m *memory) makeRoom(size int) {
	for len(m.sorts) > 0 && m.nodes+size > maxRememberedNodes {
		var oldest sortKey
		var used time.Time
		for key, r := range m.sorts {
			if used.IsZero() || r.used.Before(used) {
				oldest, used = key, r.used
			}
		}
		m.drop(oldest)
	}
}

// fade forgets what was not used for a while.
func (m *memory) fade(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, r := range m.sorts {
		if now.Sub(r.used) > memoryFades {
			m.drop(key)
		}
	}
}

func (m *memory) drop(key sortKey) {
	m.nodes -= len(m.sorts[key].nodes)
	delete(m.sorts, key)
}
