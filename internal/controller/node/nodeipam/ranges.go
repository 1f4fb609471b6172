package nodeipam

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// maxBitsIPv6 bounds the difference between a node's and the cluster's mask size for IPv6, as upstream.
const maxBitsIPv6 = 16

var (
	errFull   = errors.New("CIDR allocation failed; there are no remaining CIDRs left to allocate in the accepted range")
	errTooBig = errors.New("New CIDR set failed; the node CIDR size is too big") //nolint:staticcheck // upstream's wording
)

// ranges is one cluster CIDR, divided into equal CIDRs for nodes.
type ranges struct {
	cluster netip.Prefix
	bits    int    // mask size of a node's CIDR
	count   uint64 // number of node CIDRs
	next    uint64 // where the search for a free one begins
	// taken holds how many nodes have each CIDR. It may be two, if another client assigned it.
	taken map[uint64]int
	// wide holds taken CIDRs that are larger than a node's, such as the Service CIDR.
	wide []netip.Prefix
}

func newRanges(cluster netip.Prefix, bits int) (*ranges, error) {
	if bits < cluster.Bits() || bits > cluster.Addr().BitLen() {
		return nil, errors.New("Controller: Invalid --cluster-cidr, mask size of cluster CIDR must be less than or equal to --node-cidr-mask-size configured for CIDR family") //nolint:staticcheck // upstream's wording
	}
	if cluster.Addr().Is6() && bits-cluster.Bits() > maxBitsIPv6 {
		return nil, errTooBig
	}
	return &ranges{cluster: cluster.Masked(), bits: bits, count: 1 << (bits - cluster.Bits()), taken: map[uint64]int{}}, nil
}

// at returns a node CIDR by its number: the bits between the cluster's prefix and the node's.
func (r *ranges) at(n uint64) netip.Prefix {
	if r.cluster.Addr().Is4() {
		address := r.cluster.Addr().As4()
		binary.BigEndian.PutUint32(address[:], binary.BigEndian.Uint32(address[:])|uint32(n<<(32-r.bits)))
		return netip.PrefixFrom(netip.AddrFrom4(address), r.bits)
	}
	address := r.cluster.Addr().As16()
	high, low := binary.BigEndian.Uint64(address[:8]), binary.BigEndian.Uint64(address[8:])
	shift := 128 - r.bits
	if shift >= 64 {
		high |= n << (shift - 64)
	} else {
		low |= n << shift
		if shift > 0 {
			high |= n >> (64 - shift)
		}
	}
	binary.BigEndian.PutUint64(address[:8], high)
	binary.BigEndian.PutUint64(address[8:], low)
	return netip.PrefixFrom(netip.AddrFrom16(address), r.bits)
}

// number returns the number of the node CIDR that contains an address.
func (r *ranges) number(address netip.Addr) uint64 {
	if address.Is4() {
		a, base := address.As4(), r.cluster.Addr().As4()
		return uint64((binary.BigEndian.Uint32(a[:]) ^ binary.BigEndian.Uint32(base[:])) >> (32 - r.bits))
	}
	a, base := address.As16(), r.cluster.Addr().As16()
	high := binary.BigEndian.Uint64(a[:8]) ^ binary.BigEndian.Uint64(base[:8])
	low := binary.BigEndian.Uint64(a[8:]) ^ binary.BigEndian.Uint64(base[8:])
	shift := 128 - r.bits
	if shift >= 64 {
		return high >> (shift - 64)
	}
	return low>>shift | high<<(64-shift) // the upper bits are zero: a number has at most maxBitsIPv6
}

// take marks a CIDR as taken. It may be larger or smaller than a node's.
func (r *ranges) take(p netip.Prefix) error {
	switch {
	case !p.Overlaps(r.cluster):
		return fmt.Errorf("cidr %v is out the range of cluster cidr %v", p, r.cluster)
	case p.Bits() < r.bits:
		r.wide = append(r.wide, p)
	default:
		r.taken[r.number(p.Addr())]++
	}
	return nil
}

// free reverts a take.
func (r *ranges) free(p netip.Prefix) {
	switch {
	case !p.Overlaps(r.cluster):
	case p.Bits() < r.bits:
		for i, w := range r.wide {
			if w == p {
				r.wide = append(r.wide[:i], r.wide[i+1:]...)
				return
			}
		}
	default:
		n := r.number(p.Addr())
		if r.taken[n]--; r.taken[n] <= 0 {
			delete(r.taken, n)
		}
	}
}

// allocate takes the next free CIDR, starting after the last one allocated: a CIDR that was just freed is not used again at once.
func (r *ranges) allocate() (netip.Prefix, error) {
	for range r.count {
		n := r.next
		r.next = (r.next + 1) % r.count
		if r.taken[n] > 0 {
			continue
		}
		p := r.at(n)
		if w, ok := r.within(p); ok {
			// Continue after the wide CIDR, or at the start.
			if w.Contains(r.at(r.count - 1).Addr()) {
				r.next = 0
				if w.Contains(r.cluster.Addr()) {
					break
				}
			} else {
				r.next = r.number(last(w)) + 1
			}
			continue
		}
		r.taken[n]++
		return p, nil
	}
	return netip.Prefix{}, errFull
}

func (r *ranges) within(p netip.Prefix) (netip.Prefix, bool) {
	for _, w := range r.wide {
		if w.Overlaps(p) {
			return w, true
		}
	}
	return netip.Prefix{}, false
}

// last returns the last address of a CIDR.
func last(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(bytes)*8; i++ {
		bytes[i/8] |= 1 << (7 - i%8)
	}
	address, _ := netip.AddrFromSlice(bytes)
	return address
}
