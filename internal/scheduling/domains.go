package scheduling

// nodeDomains holds the domain of each node, by slot, as a number; noDomain if the node has no such label. It is valid for the nodes of a snapshot and for
// those made from them by With and Without.
type nodeDomains []int32

const (
	noDomain    int32 = -1
	emptyDomain int32 = 0 // of nodes whose label is empty
)

// domains holds the values that nodes have of one label, numbered in the order they were first seen.
type domains struct {
	key  string
	ids  map[string]int32
	seen []uint64    // by slot: the version of the labels that were read
	of   nodeDomains // never changed after it was returned: a change makes a new one
}

// nodeDomains returns the domains of the snapshot's nodes by a topology key, and how many domains there are.
func (h *shared) nodeDomains(key string, s *Snapshot) (of nodeDomains, size int) {
	d := h.domains[key]
	if d == nil {
		d = &domains{key: key, ids: map[string]int32{"": emptyDomain}}
		h.domains[key] = d
	}
	if !d.current(s.nodes, int(h.slots)) {
		d.refresh(s.nodes, int(h.slots))
	}
	return d.of, len(d.ids)
}

func (d *domains) current(nodes []*Node, slots int) bool {
	if len(d.of) < slots {
		return false
	}
	for _, n := range nodes {
		if d.seen[n.slot] != n.labelVersion {
			return false
		}
	}
	return true
}

func (d *domains) refresh(nodes []*Node, slots int) {
	of, seen := make(nodeDomains, slots), make([]uint64, slots)
	copy(of, d.of)
	copy(seen, d.seen)
	for _, n := range nodes {
		if seen[n.slot] == n.labelVersion {
			continue
		}
		seen[n.slot], of[n.slot] = n.labelVersion, noDomain
		if value, ok := n.Labels[d.key]; ok {
			id, known := d.ids[value]
			if !known {
				id = int32(len(d.ids))
				d.ids[value] = id
			}
			of[n.slot] = id
		}
	}
	d.of, d.seen = of, seen
}
