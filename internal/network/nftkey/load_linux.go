package nftkey

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Register is the first of the four-byte registers of nftables. A concatenation takes one for each part, and four for an IPv6 address.
const Register = unix.NFT_REG32_00

// Load builds the expressions that load parts of a packet into consecutive registers.
type Load struct {
	Exprs []expr.Any
	Next  uint32 // the next free register, counted from Register
}

// Header loads a part of one of the packet's headers.
func (l *Load) Header(base expr.PayloadBase, offset, length uint32) *Load {
	l.Exprs = append(l.Exprs, &expr.Payload{DestRegister: Register + l.Next, Base: base, Offset: offset, Len: length})
	l.Next += (length + 3) / 4
	return l
}

// Protocol loads the transport protocol number.
func (l *Load) Protocol() *Load {
	l.Exprs = append(l.Exprs, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: Register + l.Next})
	l.Next++
	return l
}

// Port loads the destination port.
func (l *Load) Port() *Load { return l.Header(expr.PayloadBaseTransportHeader, 2, 2) }
