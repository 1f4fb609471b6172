package nft

import (
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"skiff/internal/network/nftkey"
	"skiff/internal/network/proxy/model"
)

// balancer is a chain that sends to one of a number of endpoints. All frontends that have the same needs share it, but for those of a Port that has
// session affinity: they have chains of their own.
type balancer struct {
	masquerade bool
	policy     bool // clients outside the cluster are brought to endpoints on this node, others to all

	family      model.Family
	by          by
	count, near int // endpoints; near for clients in the cluster, if there is a policy

	stays bool
	id    uint32 // of the Port
	local bool   // its pool is the one of this node
}

func (b balancer) name() string {
	if b.stays {
		switch {
		case b.masquerade:
			return stayName(b.id, "masquerade")
		case b.policy:
			return stayName(b.id, "policy")
		case b.local:
			return stayName(b.id, "local")
		}
		return stayName(b.id, "cluster")
	}
	name := fmt.Sprintf("lb%d-%d", b.family, b.count)
	if b.by == byNodePort {
		name = fmt.Sprintf("np%d-%d", b.family, b.count)
	}
	switch {
	case b.policy:
		name += fmt.Sprintf("-near-%d", b.near)
	case b.masquerade:
		name += "-masquerade"
	}
	return name
}

// balance adds the chain of a balancer, unless it is there. Those of Ports with affinity are: see stay.
func (tx *transaction) balance(b balancer) string {
	name := b.name()
	_, there := tx.m.chains[name]
	if _, empty := tx.m.empty[name]; b.stays || there && !empty {
		return name
	}
	tx.refill(name)
	f := familyOf(b.family)
	send := func(targets role, count int) []expr.Any {
		key := f.frontend(b.by)
		key.Exprs = append(key.Exprs, &expr.Numgen{Register: nftkey.Register + key.Next, Modulus: uint32(count), Type: unix.NFT_NG_RANDOM})
		return append(append(key.Exprs, get(tx.set(setName{b.by.role(targets), b.family}))...), f.redirect()...)
	}
	if b.masquerade {
		tx.rule(name, tx.m.setMark(true))
	}
	if b.policy && b.near > 0 {
		tx.near(name, f, send(nearEndpoints, b.near))
	}
	if b.count > 0 {
		tx.rule(name, f.matches(), send(endpoints, b.count))
	}
	return name
}

// near does something with what comes from pods and from this node itself: traffic policies do not concern them. What this node sends is
// masqueraded, as the source may be an address that an answer would not come back to.
func (tx *transaction) near(chain string, f *family, do []expr.Any) {
	for _, p := range tx.m.inside(f) {
		tx.rule(chain, f.matches(), f.from(p, expr.CmpOpEq), do)
	}
	tx.rule(chain, fromThisNode(), tx.m.setMark(true))
	tx.rule(chain, f.matches(), fromThisNode(), do)
}

// redirect sends to the address and port that were loaded.
func (f *family) redirect() []expr.Any {
	return []expr.Any{&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.proto), RegAddrMin: nftkey.Register, RegProtoMin: nftkey.Register + f.words(), Specified: true}}
}
