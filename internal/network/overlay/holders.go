package overlay

import (
	"net/netip"
	"slices"
)

// holders maps ranges to the nodes that have them. Nearly all ranges of a cluster have the same prefix length, so overlaps are found with one
// map lookup for each prefix length.
type holders struct {
	byRange       map[netip.Prefix]*node
	prefixLengths [2][]int // the prefix lengths of byRange's keys, of IPv4 and of IPv6
}

func (h *holders) add(r netip.Prefix, who *node) {
	if h.byRange == nil {
		h.byRange = map[netip.Prefix]*node{}
	}
	h.byRange[r] = who
	if sizes := &h.prefixLengths[family(r)]; !slices.Contains(*sizes, r.Bits()) {
		*sizes = append(*sizes, r.Bits())
	}
}

// holder returns the node with a range that overlaps r; nil if there is none.
func (h *holders) holder(r netip.Prefix) *node {
	hasSmaller := false
	for _, bits := range h.prefixLengths[family(r)] {
		if bits > r.Bits() {
			hasSmaller = true
			continue
		}
		wide := netip.PrefixFrom(r.Addr(), bits).Masked()
		if who := h.byRange[wide]; who != nil {
			return who
		}
	}
	if !hasSmaller {
		return nil
	}
	var found *node
	for held, who := range h.byRange {
		if r.Overlaps(held) && (found == nil || who.before(found) < 0) { // the first by creation, so that the result does not depend on map order
			found = who
		}
	}
	return found
}

func family(r netip.Prefix) int {
	if r.Addr().Is6() {
		return 1
	}
	return 0
}
