package overlay

import (
	"net/netip"
	"slices"
)

// holders says who has which range. Nearly all ranges of a cluster are of one size, so a look at each size that there is finds overlaps.
type holders struct {
	byRange map[netip.Prefix]*node
	sizes   [2][]int // prefix lengths that there are, of IPv4 and of IPv6
}

func (h *holders) add(r netip.Prefix, who *node) {
	if h.byRange == nil {
		h.byRange = map[netip.Prefix]*node{}
	}
	h.byRange[r] = who
	if sizes := &h.sizes[family(r)]; !slices.Contains(*sizes, r.Bits()) {
		*sizes = append(*sizes, r.Bits())
	}
}

// holder is who has a range that shares an address with this one; nil if nobody has.
func (h *holders) holder(r netip.Prefix) *node {
	smaller := false
	for _, bits := range h.sizes[family(r)] {
		if bits > r.Bits() {
			smaller = true
			continue
		}
		wide := netip.PrefixFrom(r.Addr(), bits).Masked()
		if who := h.byRange[wide]; who != nil {
			return who
		}
	}
	if !smaller {
		return nil
	}
	var found *node
	for held, who := range h.byRange {
		if r.Overlaps(held) && (found == nil || who.before(found) < 0) { // the same one every time
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
