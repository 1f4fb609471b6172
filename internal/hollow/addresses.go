package hollow

import (
	"encoding/binary"
	"net/netip"
)

// hostNumbers holds the numbers of addresses within a node's CIDR that its pods have: a bit each.
type hostNumbers struct {
	taken [16]uint64
	last  uint16
}

// maxHosts is the number of addresses of a node's CIDR that its pods may have; number 0 is the network address.
const maxHosts = 16 * 64

// allocate returns the next free number after the last one it returned, below limit. It returns 0 if there is none: no node runs so many pods that
// this matters.
func (h *hostNumbers) allocate(limit uint16) uint16 {
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

func (h *hostNumbers) take(n uint16) { h.taken[n/64] |= 1 << (n % 64) }
func (h *hostNumbers) free(n uint16) { h.taken[n/64] &^= 1 << (n % 64) }

// defaultPodRange is where nodes without a pod CIDR take a /24 from: carrier-grade NAT addresses, which nothing else uses here.
var defaultPodRange = netip.MustParsePrefix("100.64.0.0/10")

// nodeRange is where the nodes' own addresses come from.
var nodeRange = netip.MustParsePrefix("172.16.0.0/12")

// ranges returns the CIDRs of a node's pods.
func (k *kubelet) ranges() []netip.Prefix {
	if len(k.cidrs) > 0 {
		return k.cidrs
	}
	return []netip.Prefix{netip.PrefixFrom(offset(defaultPodRange.Addr(), uint32(k.number)<<8&(1<<22-1)), 24)}
}

// limit returns how many numbers there are in the smallest of the CIDRs.
func limit(ranges []netip.Prefix) uint16 {
	n := maxHosts
	for _, r := range ranges {
		if free := r.Addr().BitLen() - r.Bits(); free < 10 {
			n = min(n, 1<<free-1) // the last is the broadcast address
		}
	}
	return uint16(max(n, 1))
}

// addressesOf returns the addresses with a number, one per CIDR.
func addressesOf(ranges []netip.Prefix, host uint16) (out []string) {
	for _, r := range ranges {
		out = append(out, offset(r.Masked().Addr(), uint32(host)).String())
	}
	return out
}

// hostOf returns the number of an address in the first CIDR, 0 if it is not in it.
func hostOf(ranges []netip.Prefix, address string) uint16 {
	a, err := netip.ParseAddr(address)
	if err != nil || !ranges[0].Contains(a) {
		return 0
	}
	bytes, base := a.AsSlice(), ranges[0].Masked().Addr().AsSlice()
	n := len(bytes)
	host := binary.BigEndian.Uint32(bytes[n-4:]) - binary.BigEndian.Uint32(base[n-4:])
	if host >= maxHosts {
		return 0
	}
	return uint16(host)
}

// offset returns the address that follows another by that many.
func offset(a netip.Addr, by uint32) netip.Addr {
	bytes := a.AsSlice()
	n := len(bytes)
	binary.BigEndian.PutUint32(bytes[n-4:], binary.BigEndian.Uint32(bytes[n-4:])+by)
	out, _ := netip.AddrFromSlice(bytes)
	return out
}

// hostIP returns the address of a node.
func (k *kubelet) hostIP() string {
	return offset(nodeRange.Addr(), uint32(k.number)%(1<<20-2)+1).String()
}
