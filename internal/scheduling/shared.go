package scheduling

import (
	"maps"
	"sync"
)

// shared holds what all snapshots made from one another have in common. It numbers nodes, and keeps for plugins what they would otherwise count anew for
// every pod: how many pods on each node match a selector (tally), which terms the pods of a node have (heldTerms), and the domain of each node by a
// topology key (domains). Each is updated for the current snapshot by recounting the nodes that are not the ones it was counted for: usually one, the
// node that the last pod was assigned to.
type shared struct {
	mu      sync.Mutex
	slots   int32   // number of slots in use or free
	free    []int32 // released slots
	counter uint64

	domains map[string]*domains // by topology key
	tallies map[string]*tally
	held    heldTerms
}

// Bounds of what is kept. What exceeds them is dropped and counted again when needed.
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

// lock begins a preparation, which may use what is kept until it unlocks mu. Domain numbers are valid until then.
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

// forgetDomains also drops held terms, which are counted by domain numbers.
func (h *shared) forgetDomains() {
	h.domains, h.held = map[string]*domains{}, heldTerms{terms: map[string]*heldTerm{}}
}

// next returns a number that was never used before.
func (h *shared) next() uint64 {
	h.counter++
	return h.counter
}

// add puts a node into a snapshot: its slot is its index in arrays, its version tells whether a count is of this very node.
func (h *shared) add(n *Node) *Node {
	n = ownedCopy(n)
	n.home, n.version, n.labelVersion = h, h.next(), h.next()
	if last := len(h.free) - 1; last >= 0 {
		n.slot, h.free = h.free[last], h.free[:last]
	} else {
		n.slot = h.slots
		h.slots++
	}
	return n
}

// replace puts a node in the place of the old one of its name.
func (h *shared) replace(old, n *Node) *Node {
	n = ownedCopy(n)
	n.home, n.version, n.slot = h, h.next(), old.slot
	if n.labelVersion = old.labelVersion; old.Node != n.Node && !maps.Equal(old.Labels, n.Labels) {
		n.labelVersion = h.next()
	}
	return n
}

// ownedCopy returns the node, or a copy of it if it is in a snapshot already.
func ownedCopy(n *Node) *Node {
	if n.home != nil {
		return n.copyOutside()
	}
	return n
}

func (h *shared) release(slot int32) { h.free = append(h.free, slot) }
