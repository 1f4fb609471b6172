// Package nftkey loads parts of packets into nftables' registers, one after the other, as keys of its sets and maps.
package nftkey

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Register is the first of the registers of four bytes. A concatenation takes one for each part, and four for an address of IPv6.
const Register = unix.NFT_REG32_00

// Load puts parts of a packet into registers one after the other.
type Load struct {
	Exprs []expr.Any
	Next  uint32 // the register after Register that is free
}

// Header loads a part of one of the packet's headers.
func (l *Load) Header(base expr.PayloadBase, offset, length uint32) *Load {
	l.Exprs = append(l.Exprs, &expr.Payload{DestRegister: Register + l.Next, Base: base, Offset: offset, Len: length})
	l.Next += (length + 3) / 4
	return l
}

// Protocol loads the number of the protocol above IP.
func (l *Load) Protocol() *Load {
	l.Exprs = append(l.Exprs, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: Register + l.Next})
	l.Next++
	return l
}

// Port loads the port that the packet goes to.
func (l *Load) Port() *Load { return l.Header(expr.PayloadBaseTransportHeader, 2, 2) }
