package nft

import (
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"skiff/internal/network/nftkey"
)

// by is what identifies a frontend: address, protocol and port or, for a node port, protocol and port only.
type by uint8

const (
	byAddress by = iota
	byNodePort
)

// role returns the role of the set for such frontends.
func (b by) role(r role) role {
	if b == byNodePort {
		return r + forNodePorts
	}
	return r
}

// frontend loads the fields that identify a frontend.
func (f *family) frontend(by by) *nftkey.Load {
	l := &nftkey.Load{}
	if by == byAddress {
		l.Header(expr.PayloadBaseNetworkHeader, f.dest, f.length)
	}
	return l.Protocol().Port()
}

func (f *family) destination() []expr.Any {
	return new(nftkey.Load).Header(expr.PayloadBaseNetworkHeader, f.dest, f.length).Exprs
}

// match continues with the rule if the loaded key is in a set or, inverted, is not.
func match(s *nftables.Set, invert bool) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: nftkey.Register, SetName: s.Name, SetID: s.ID, Invert: invert}}
}

// verdictFrom applies the verdict that a map has for the loaded key, if it has one.
func verdictFrom(s *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: nftkey.Register, DestRegister: 0, IsDestRegSet: true, SetName: s.Name, SetID: s.ID}}
}

// valueFrom replaces the loaded key by the value that a map has for it, and ends the rule if it has none.
func valueFrom(s *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: nftkey.Register, DestRegister: nftkey.Register, IsDestRegSet: true, SetName: s.Name, SetID: s.ID}}
}

func jump(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}
}
func drop() []expr.Any       { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }
func masquerade() []expr.Any { return []expr.Any{&expr.Masq{FullyRandom: true}} }

// isNew matches the first packet of a connection.
func isNew() []expr.Any {
	return ctBit(expr.CtKeySTATE, expr.CtStateBitNEW)
}

// isDNATed matches connections whose destination was changed.
func isDNATed() []expr.Any {
	const statusDNAT = 1 << 5
	return ctBit(expr.CtKeySTATUS, statusDNAT)
}

func ctBit(key expr.CtKey, bit uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Register: 1, Key: key},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bit), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

// fromThisNode matches packets from an address of this node.
func fromThisNode() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagSADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

// setMark sets or clears the bit of the packet mark that requests masquerading. Other bits, which are other programs', stay.
func (m *Mode) setMark(on bool) []expr.Any {
	mark, xor := m.config.Mark(), uint32(0)
	if on {
		xor = mark
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(^mark), Xor: binaryutil.NativeEndian.PutUint32(xor)},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true},
	}
}

// isMarked matches packets whose mark requests masquerading.
func (m *Mode) isMarked() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(m.config.Mark()), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}
