package hollow

import (
	"encoding/binary"
	"net/netip"
)

// hosts are the numbers of addresses within a node's range that its pods have: a bit each.
type hosts struct {
	taken [16]uint64
	last  uint16
}

// most is how many pods of a node can have an address, less one: number 0 is the range itself.
const most = 16 * 64

// allocate finds a number that is free, after the one it found last, below limit. It is 0 if there is none: no node runs so many
// pods that this matters.
func (h *hosts) allocate(limit uint16) uint16 {
	for i := range limit {
		n := (h.last + i) % limit
		if n++; n < limit && h.taken[n/64]&(1<<(n%64)) == 0 {
			h.take(n)
			h.last = n
			return n
		}
	}
	return 0
}

func (h *hosts) take(n uint16) { h.taken[n/64] |= 1 << (n % 64) }
func (h *hosts) free(n uint16) { h.taken[n/64] &^= 1 << (n % 64) }

// Where no range was assigned to nodes, they make one up: a /24 of those that carriers use among themselves, so that it is nobody else's here.
var ownRange = netip.MustParsePrefix("100.64.0.0/10")

// Nodes have addresses of their own as well.
var nodeRange = netip.MustParsePrefix("172.16.0.0/12")

// ranges are where the addresses of a node's pods come from.
func (k *kubelet) ranges() []netip.Prefix {
	if len(k.cidrs) > 0 {
		return k.cidrs
	}
	return []netip.Prefix{netip.PrefixFrom(offset(ownRange.Addr(), uint32(k.number)<<8&(1<<22-1)), 24)}
}

// limit is how many numbers there are in a range.
func limit(ranges []netip.Prefix) uint16 {
	n := most
	for _, r := range ranges {
		if free := r.Addr().BitLen() - r.Bits(); free < 10 {
			n = min(n, 1<<free-1) // the last is for broadcasts
		}
	}
	return uint16(max(n, 1))
}

// addressesOf are the addresses with a number, one per range.
func addressesOf(ranges []netip.Prefix, host uint16) (out []string) {
	for _, r := range ranges {
		out = append(out, offset(r.Masked().Addr(), uint32(host)).String())
	}
	return out
}

// hostOf is the number of an address in the first range, 0 if it is not in it.
func hostOf(ranges []netip.Prefix, address string) uint16 {
	a, err := netip.ParseAddr(address)
	if err != nil || !ranges[0].Contains(a) {
		return 0
	}
	bytes, base := a.AsSlice(), ranges[0].Masked().Addr().AsSlice()
	n := len(bytes)
	host := binary.BigEndian.Uint32(bytes[n-4:]) - binary.BigEndian.Uint32(base[n-4:])
	if host >= most {
		return 0
	}
	return uint16(host)
}

// offset is the address so many after another.
func offset(a netip.Addr, by uint32) netip.Addr {
	bytes := a.AsSlice()
	n := len(bytes)
	binary.BigEndian.PutUint32(bytes[n-4:], binary.BigEndian.Uint32(bytes[n-4:])+by)
	out, _ := netip.AddrFromSlice(bytes)
	return out
}

// hostIP is the address of a node.
func (k *kubelet) hostIP() string {
	return offset(nodeRange.Addr(), uint32(k.number)%(1<<20-2)+1).String()
}
