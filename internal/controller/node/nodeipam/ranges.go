package nodeipam

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// maxBits6 is by how many bits the range of a node may be smaller than the cluster's, for IPv6, as upstream has it.
const maxBits6 = 16

var (
	errFull   = errors.New("CIDR allocation failed; there are no remaining CIDRs left to allocate in the accepted range")
	errTooBig = errors.New("New CIDR set failed; the node CIDR size is too big") //nolint:staticcheck // upstream's wording
)

// ranges is one of the cluster's ranges, cut into equal ones for nodes.
type ranges struct {
	cluster netip.Prefix
	bits    int    // of a node's prefix
	count   uint64 // of nodes' ranges
	next    uint64 // where the search for a free one begins
	// taken says how many nodes have a range. Two may, if somebody else assigned it.
	taken map[uint64]int
	// wide are taken ranges that are larger than a node's, such as the one of services.
	wide []netip.Prefix
}

func newRanges(cluster netip.Prefix, bits int) (*ranges, error) {
	if bits < cluster.Bits() || bits > cluster.Addr().BitLen() {
		return nil, errors.New("Controller: Invalid --cluster-cidr, mask size of cluster CIDR must be less than or equal to --node-cidr-mask-size configured for CIDR family") //nolint:staticcheck // upstream's wording
	}
	if cluster.Addr().Is6() && bits-cluster.Bits() > maxBits6 {
		return nil, errTooBig
	}
	return &ranges{cluster: cluster.Masked(), bits: bits, count: 1 << (bits - cluster.Bits()), taken: map[uint64]int{}}, nil
}

// at is a node's range by its number: the number stands in the address between the cluster's prefix and the node's.
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

// number is the number of the node's range that an address lies in.
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
	return low>>shift | high<<(64-shift) // the upper bits are zero: a number has at most maxBits6
}

// take marks a range as taken, which may be larger or smaller than a node's.
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

// free takes a mark of take back.
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

// allocate takes the next range that is free, beginning after the one it found last: one that was just given back rests.
func (r *ranges) allocate() (netip.Prefix, error) {
	for range r.count {
		n := r.next
		r.next = (r.next + 1) % r.count
		if r.taken[n] > 0 {
			continue
		}
		p := r.at(n)
		if w, ok := r.within(p); ok {
			// On behind the wide range, or around.
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

// last is the last address of a range.
func last(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(bytes)*8; i++ {
		bytes[i/8] |= 1 << (7 - i%8)
	}
	address, _ := netip.AddrFromSlice(bytes)
	return address
}
