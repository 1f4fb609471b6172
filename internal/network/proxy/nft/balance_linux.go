package nft

import (
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"skiff/internal/network/proxy/model"
)

// balancer is a chain that sends to one of a number of endpoints. All frontends that have the same needs share it, but for those of a Port that has
// session affinity: they have chains of their own.
type balancer struct {
	family     model.Family
	near       bool // for clients in the cluster
	masquerade bool

	by    by
	count int

	stays bool
	id    uint32 // of the Port
	local bool   // its pool is the one of this node
}

func (b balancer) name() string {
	if b.stays {
		switch {
		case b.masquerade:
			return stayName(b.id, "masquerade")
		case b.near:
			return stayName(b.id, "near")
		case b.local:
			return stayName(b.id, "local")
		}
		return stayName(b.id, "cluster")
	}
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
	return name
}

// balance adds the chain of a balancer, unless it is there.
func (tx *transaction) balance(b balancer) string {
	name := b.name()
	_, there := tx.m.chains[name]
	if _, empty := tx.m.empty[name]; there && !empty {
		return name
	}
	tx.refill(name)
	tx.prepare(name, b)
	if b.stays { // the chains of pools are there by now: see stay
		tx.rule(name, []expr.Any{leadTo(stayName(b.id, "cluster"))})
		return name
	}
	f, targets := familyOf(b.family), endpoints
	if b.near {
		targets = nearEndpoints
	}
	key := f.frontend(b.by)
	key.exprs = append(key.exprs, &expr.Numgen{Register: register + key.next, Modulus: uint32(b.count), Type: unix.NFT_NG_RANDOM})
	tx.rule(name, f.matches(), key.exprs, get(tx.set(setName{b.by.role(targets), b.family})), f.redirect())
	return name
}

// prepare marks what is to be masqueraded: all, or what this node itself sends to an address that its answer could not come back to.
func (tx *transaction) prepare(name string, b balancer) {
	switch {
	case b.masquerade:
		tx.rule(name, tx.m.setMark(true))
	case b.near:
		tx.rule(name, fromThisNode(), tx.m.setMark(true))
	}
}

// redirect sends to the address and port that were loaded.
func (f *family) redirect() []expr.Any {
	return []expr.Any{&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.proto), RegAddrMin: register, RegProtoMin: register + f.words(), Specified: true}}
}
