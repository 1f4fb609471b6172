package nft

import (
	"fmt"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"skiff/internal/network/proxy/model"
)

// balancer is a chain that sends to one of a number of endpoints. All frontends that have the same needs share it.
type balancer struct {
	family     model.Family
	by         by
	near       bool // the pool is the one for clients in the cluster
	masquerade bool
	count      int
	affinity   time.Duration
}

func (b balancer) name() string {
	name := fmt.Sprintf("lb%d-%d", b.family, b.count)
	if b.by == byNodePort {
		name = fmt.Sprintf("np%d-%d", b.family, b.count)
	}
	if b.near {
		name += "-near"
	}
	if b.masquerade {
		name += "-masquerade"
	}
	if b.affinity != 0 {
		name += fmt.Sprintf("-stay%d", int(b.affinity/time.Second))
	}
	return name
}

// balance adds the chain of a balancer, unless it is there.
func (tx *transaction) balance(b balancer) string {
	name := b.name()
	if _, ok := tx.m.chains[name]; ok {
		return name
	}
	tx.chain(name)
	f := familyOf(b.family)
	sets := tx.m.sets[tx.m.index(b.family)]
	pool := sets[pools]
	if b.near {
		pool = sets[nearPools]
	}
	if b.masquerade {
		tx.rule(name, tx.m.setMark(true))
	}
	if b.affinity != 0 {
		tx.stay(name, f, sets, pool, b)
		return name
	}
	tx.rule(name,
		f.frontend(b.by).exprs, get(pool, register, register),
		[]expr.Any{&expr.Numgen{Register: register + 1, Modulus: uint32(b.count), Type: unix.NFT_NG_RANDOM}},
		get(sets[endpoints], register, register), f.redirect(register))
	return name
}

// What a rule may do to elements of a set when a packet comes.
const (
	dynsetUpdate = 1
	dynsetDelete = 2
)

// stay sends a client where it went before, if that is still an endpoint. Otherwise what is remembered of it is removed, as updating an
// element leaves its value as it is, and the endpoint that is chosen is remembered.
func (tx *transaction) stay(name string, f *family, sets [roles]*nftables.Set, pool *nftables.Set, b balancer) {
	// In registers: pool, client; then address and port of the endpoint, and the pool once more.
	target := register + 1 + f.words()
	check := target + f.words() + 1
	client := &load{exprs: get(pool, register, register), next: 1}
	client.header(expr.PayloadBaseNetworkHeader, f.source, f.length)
	who := append(f.frontend(b.by).exprs, client.exprs...)
	remember := []expr.Any{&expr.Dynset{
		SrcRegKey: register, SrcRegData: target, SetName: sets[affinity].Name, SetID: sets[affinity].ID, Operation: dynsetUpdate, Timeout: b.affinity,
	}}
	tx.rule(name, who, get(sets[affinity], register, target),
		f.frontendAt(check-register, b.by).exprs, get(pool, check, check),
		[]expr.Any{&expr.Lookup{SourceRegister: target, SetName: sets[members].Name, SetID: sets[members].ID}},
		remember, f.redirect(target))
	forget := &expr.Dynset{SrcRegKey: register, SrcRegData: register, SetName: sets[affinity].Name, SetID: sets[affinity].ID, Operation: dynsetDelete}
	tx.rule(name, who, []expr.Any{forget}) // which must name a value, too, and does not look at it
	tx.rule(name, who,
		f.frontendAt(target-register, b.by).exprs, get(pool, target, target),
		[]expr.Any{&expr.Numgen{Register: target + 1, Modulus: uint32(b.count), Type: unix.NFT_NG_RANDOM}},
		get(sets[endpoints], target, target), remember, f.redirect(target))
	// The table of clients is full: balanced all the same.
	tx.rule(name, f.frontend(b.by).exprs, get(pool, register, register),
		[]expr.Any{&expr.Numgen{Register: register + 1, Modulus: uint32(b.count), Type: unix.NFT_NG_RANDOM}},
		get(sets[endpoints], register, register), f.redirect(register))
}

// redirect sends to the address and port in registers.
func (f *family) redirect(at uint32) []expr.Any {
	return []expr.Any{&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.proto), RegAddrMin: at, RegProtoMin: at + f.words(), Specified: true}}
}
