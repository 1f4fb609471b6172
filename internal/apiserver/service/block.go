package service

import (
	"encoding/binary"
	"iter"
	"math"
	"math/bits"
	"math/rand/v2"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// block is a range of addresses to allocate: those of a prefix except for its first, the network address, and in IPv4 its last, the
// broadcast address.
//
// Its lower part, the static band, is reserved for services that request a specific address as long as the upper part has a free one, so
// that well-known addresses, such as that of DNS, are free when they are requested.
type block struct {
	prefix      netip.Prefix
	first, last netip.Addr
	static      uint64 // number of addresses in the static band
}

// newBlock returns the block of a prefix. IPv6 prefixes shorter than 64 are not supported, as upstream.
func newBlock(prefix netip.Prefix) (block, bool) {
	prefix = prefix.Masked()
	host := prefix.Addr().BitLen() - prefix.Bits()
	if host > 64 || host == 0 {
		return block{}, false
	}
	highest := uint64(math.MaxUint64) >> (64 - host) // relative to the network's address
	b := block{prefix: prefix, first: prefix.Addr().Next(), last: add(prefix.Addr(), highest), static: staticPart(highest)}
	if prefix.Addr().Is4() {
		b.last = b.last.Prev()
	}
	return b, !b.last.Less(b.first)
}

// staticPart returns the number of addresses in the static band of a prefix whose addresses are numbered from 0 to highest: a sixteenth,
// within bounds.
func staticPart(highest uint64) uint64 {
	const least, most, share = 16, 256, 16
	if highest < least {
		return 0
	}
	return min(max(least, highest/share+1), most)
}

func (b block) family() corev1.IPFamily { return familyOf(b.first) }

func (b block) contains(ip netip.Addr) bool {
	return b.prefix.Contains(ip) && !ip.Less(b.first) && !b.last.Less(ip)
}

// candidates iterates over all addresses of the block in the order in which to try them: the upper part, then the static band, each from a random start.
func (b block) candidates() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		upper := add(b.first, b.static)
		if round(upper, b.last, yield) && b.static > 0 {
			round(b.first, upper.Prev(), yield)
		}
	}
}

// round yields the addresses from first to last, starting at a random one and wrapping around. It reports whether it yielded all.
func round(first, last netip.Addr, yield func(netip.Addr) bool) bool {
	start := add(first, random(distance(first, last)))
	for ip := start; ; {
		if !yield(ip) {
			return false
		}
		if ip == last {
			ip = first
		} else {
			ip = ip.Next()
		}
		if ip == start {
			return true
		}
	}
}

// random returns a number from 0 to most.
func random(most uint64) uint64 {
	if most == math.MaxUint64 {
		return rand.Uint64()
	}
	return rand.Uint64N(most + 1)
}

func add(ip netip.Addr, n uint64) netip.Addr {
	if ip.Is4() {
		b := ip.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
		return netip.AddrFrom4(b)
	}
	b := ip.As16()
	low, carry := bits.Add64(binary.BigEndian.Uint64(b[8:]), n, 0)
	binary.BigEndian.PutUint64(b[8:], low)
	binary.BigEndian.PutUint64(b[:8], binary.BigEndian.Uint64(b[:8])+carry)
	return netip.AddrFrom16(b)
}

// distance returns the difference between an address of a block and a higher one.
func distance(from, to netip.Addr) uint64 {
	if from.Is4() {
		a, b := from.As4(), to.As4()
		return uint64(binary.BigEndian.Uint32(b[:]) - binary.BigEndian.Uint32(a[:]))
	}
	a, b := from.As16(), to.As16()
	return binary.BigEndian.Uint64(b[8:]) - binary.BigEndian.Uint64(a[8:])
}
