package nft

import (
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"skiff/internal/network/nftkey"
	"skiff/internal/network/proxy/model"
)

// balancer describes a chain that sends packets to one of a number of endpoints. Frontends with equal balancers share the chain; Ports with
// session affinity have chains of their own.
type balancer struct {
	masquerade bool
	policy     bool // external traffic policy Local: clients outside the cluster get endpoints on this node, others all endpoints

	family             model.Family
	by                 by
	count, fromCluster int // the numbers of endpoints; fromCluster is for clients in the cluster, if policy is set

	affinity bool
	id       uint32 // the number of the Port, if affinity is set
	local    bool   // the pool is that of the endpoints on this node
}

func (b balancer) name() string {
	if b.affinity {
		switch {
		case b.masquerade:
			return affinityChain(b.id, "masquerade")
		case b.policy:
			return affinityChain(b.id, "policy")
		case b.local:
			return affinityChain(b.id, "local")
		}
		return affinityChain(b.id, "cluster")
	}
	name := fmt.Sprintf("lb%d-%d", b.family, b.count)
	if b.by == byNodePort {
		name = fmt.Sprintf("np%d-%d", b.family, b.count)
	}
	switch {
	case b.policy:
		name += fmt.Sprintf("-near-%d", b.fromCluster)
	case b.masquerade:
		name += "-masquerade"
	}
	return name
}

// balance returns the name of a balancer's chain, and adds the chain if it does not exist. Those of Ports with affinity exist: see writeAffinity.
func (tx *transaction) balance(b balancer) string {
	name := b.name()
	_, exists := tx.m.chains[name]
	if _, empty := tx.m.empty[name]; b.affinity || exists && !empty {
		return name
	}
	tx.ensureChain(name)
	f := familyOf(b.family)
	send := func(targets role, count int) []expr.Any {
		key := f.frontend(b.by)
		key.Exprs = append(key.Exprs, &expr.Numgen{Register: nftkey.Register + key.Next, Modulus: uint32(count), Type: unix.NFT_NG_RANDOM})
		return append(append(key.Exprs, valueFrom(tx.set(setName{b.by.role(targets), b.family}))...), f.redirect()...)
	}
	if b.masquerade {
		tx.rule(name, tx.m.setMark(true))
	}
	if b.policy && b.fromCluster > 0 {
		tx.fromCluster(name, f, send(clusterEndpoints, b.fromCluster))
	}
	if b.count > 0 {
		tx.rule(name, f.matches(), send(endpoints, b.count))
	}
	return name
}

// fromCluster adds rules that apply expressions to traffic from pods and from this node itself, to which external traffic policies do not apply.
// Traffic from this node is masqueraded, because its source may be an address that answers would not come back to.
func (tx *transaction) fromCluster(chain string, f *family, do []expr.Any) {
	for _, p := range tx.m.clusterCIDRs(f) {
		tx.rule(chain, f.matches(), f.from(p, expr.CmpOpEq), do)
	}
	tx.rule(chain, fromThisNode(), tx.m.setMark(true))
	tx.rule(chain, f.matches(), fromThisNode(), do)
}

// redirect changes the destination to the address and port in the registers.
func (f *family) redirect() []expr.Any {
	return []expr.Any{&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.proto), RegAddrMin: nftkey.Register, RegProtoMin: nftkey.Register + f.words(), Specified: true}}
}
