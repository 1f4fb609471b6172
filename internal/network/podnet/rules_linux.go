package podnet

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

func join(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }

// family describes the IP header of an address family.
type family struct {
	proto        byte
	source, dest uint32 // the offsets of the addresses in the header
	length       uint32
	address      nftables.SetDatatype
	loopback     netip.Prefix
}

var (
	ipv4 = family{unix.NFPROTO_IPV4, 12, 16, 4, nftables.TypeIPAddr, netip.MustParsePrefix("127.0.0.0/8")}
	ipv6 = family{unix.NFPROTO_IPV6, 8, 24, 16, nftables.TypeIP6Addr, netip.MustParsePrefix("::1/128")}
)

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

func isFamily(a netip.Addr) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{familyOf(a).proto}}}
}

func to(p netip.Prefix) []expr.Any   { return within(p, familyOf(p.Addr()).dest) }
func from(p netip.Prefix) []expr.Any { return within(p, familyOf(p.Addr()).source) }

func within(p netip.Prefix, offset uint32) []expr.Any {
	f := familyOf(p.Addr())
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.length},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: f.length, Mask: net.CIDRMask(p.Bits(), int(f.length)*8), Xor: make([]byte, f.length)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}

func masquerade() []expr.Any { return []expr.Any{&expr.Masq{FullyRandom: true}} }

// toThisNode matches packets for an address of this node.
func toThisNode() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

// padded returns a concatenation as nftables keeps it in registers: each part padded to four bytes.
func padded(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
		out = append(out, make([]byte, (4-len(p)%4)%4)...)
	}
	return out
}

func writeSysctl(path, value string) error {
	if err := os.WriteFile("/proc/sys/"+path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("failed to set sysctl %s to %s: %w", path, value, err)
	}
	return nil
}
