package scheduling

import (
	"maps"
	"sync"
)

// shared is what all snapshots made from one another have in common. It numbers nodes, and keeps for plugins what they would otherwise count
// anew for every pod: how many pods on each node match a selector (tally), which terms the pods of a node have (heldTerms), and in which
// domain of a topology key a node is (domains). Each is brought up to date for the snapshot at hand by looking again at the nodes that are
// not the ones it was counted for: usually one, the node that the last pod went to.
type shared struct {
	mu      sync.Mutex
	slots   int32   // how many were given out
	free    []int32 // those given back
	counter uint64

	domains map[string]*domains // by topology key
	tallies map[string]*tally
	held    heldTerms
}

// Bounds of what is kept. What goes beyond is forgotten and counted again when needed.
const (
	maxTallies      = 256 // selectors; 12 bytes per node each
	maxTopologyKeys = 256 // 12 bytes per node each
	spareDomains    = 1024
)

func newShared() *shared {
	h := &shared{tallies: map[string]*tally{}}
	h.forgetDomains()
	return h
}

// lock begins a preparation, which may use what is kept until it unlocks mu. Numbers of domains hold until then.
func (h *shared) lock() {
	h.mu.Lock()
	tooMany := len(h.domains) > maxTopologyKeys
	for _, d := range h.domains {
		tooMany = tooMany || len(d.ids) > 2*int(h.slots)+spareDomains
	}
	if tooMany {
		h.forgetDomains()
	}
}

// forgetDomains also forgets held terms, which are counted by the numbers of domains.
func (h *shared) forgetDomains() {
	h.domains, h.held = map[string]*domains{}, heldTerms{terms: map[string]*heldTerm{}}
}

// next is a number never used before.
func (h *shared) next() uint64 {
	h.counter++
	return h.counter
}

// add marks the node as being in a snapshot: its slot is its index in arrays, its version tells whether a count is of this very node.
func (h *shared) add(n *Node) *Node {
	n = owned(n)
	n.home, n.version, n.labelVersion = h, h.next(), h.next()
	if last := len(h.free) - 1; last >= 0 {
		n.slot, h.free = h.free[last], h.free[:last]
	} else {
		n.slot = h.slots
		h.slots++
	}
	return n
}

// replace marks the node as being where the old one of its name was.
func (h *shared) replace(old, n *Node) *Node {
	n = owned(n)
	n.home, n.version, n.slot = h, h.next(), old.slot
	if n.labelVersion = old.labelVersion; old.Node != n.Node && !maps.Equal(old.Labels, n.Labels) {
		n.labelVersion = h.next()
	}
	return n
}

// owned is the node, or a copy of it if it is in a snapshot already.
func owned(n *Node) *Node {
	if n.home != nil {
		return n.fresh()
	}
	return n
}

func (h *shared) release(slot int32) { h.free = append(h.free, slot) }
