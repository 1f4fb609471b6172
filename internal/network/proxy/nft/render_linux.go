package nft

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"skiff/internal/network/proxy/model"
)

// frontend is what packets are addressed to. Node ports are at address zero.
type frontend struct {
	address  netip.Addr
	protocol model.Protocol
	port     uint16
}

// element is an element of a set, with what it leads to: a value, or a chain or none if that is dropped.
type element struct {
	set    setName
	key    string
	end    string // of a range
	value  string
	chain  balancer // for services and nearby
	reject bool     // for dead
}

// setName is a set of a family.
type setName struct {
	role   role
	family model.Family
}

// frontends are all that a Port is reached at.
func frontends(p *model.Port, each func(f frontend, external, balancer bool)) {
	each(frontend{p.ClusterIP, p.Key.Protocol, p.Port}, false, false)
	for i, a := range p.ExternalAddresses() {
		each(frontend{a, p.Key.Protocol, p.Port}, true, i >= len(p.ExternalIPs) || contains(p.LoadBalancerIPs, a))
	}
	if p.NodePort != 0 {
		each(frontend{familyOf(p.Key.Family).any, p.Key.Protocol, p.NodePort}, true, false)
	}
}

func contains(list []netip.Addr, a netip.Addr) bool {
	for _, b := range list {
		if a == b {
			return true
		}
	}
	return false
}

// poolIDs are the numbers of a Port's pools.
type poolIDs struct{ cluster, local uint32 }

// render says which elements a Port has in the sets where nobody else has the same: those of its pools, and those of frontends that are its own.
func render(p *model.Port, ids poolIDs, owns func(frontend) bool, emit func(element)) {
	family := p.Key.Family
	put := func(r role, e element) {
		e.set = setName{r, family}
		emit(e)
	}
	pool := func(id uint32, list []model.Endpoint) {
		for i, e := range list {
			put(endpoints, element{key: numbers(id, uint32(i)), value: target(e.AddrPort)})
			if p.Affinity != 0 {
				put(members, element{key: target(e.AddrPort) + numbers(id)})
			}
		}
	}
	pool(ids.cluster, p.Cluster)
	pool(ids.local, p.Local)

	frontends(p, func(f frontend, external, balanced bool) {
		if !owns(f) {
			return
		}
		key := f.key()
		local, fate, list := p.InternalLocal, model.Forward, []model.Endpoint(nil)
		if external {
			local = p.ExternalLocal
			fate, list = p.External()
		} else {
			fate, list = p.Internal()
		}
		b := balancer{family: family, count: len(list), affinity: p.Affinity, masquerade: external && !local}
		if f.address.IsUnspecified() {
			b.by = byNodePort
		}
		if fate == model.Forward {
			id := ids.cluster
			if local {
				id = ids.local
			}
			put(services, element{key: key, chain: b})
			put(pools, element{key: key, value: numbers(id)})
		} else {
			put(dead, element{key: key, reject: fate == model.Reject})
		}
		if external && local {
			if fate, list := p.Near(); fate == model.Forward {
				b.near, b.masquerade, b.count = true, false, len(list)
				put(nearby, element{key: key, chain: b})
				put(nearPools, element{key: key, value: numbers(ids.cluster)})
			}
		}
		if balanced && len(p.SourceRanges) > 0 {
			put(fenced, element{key: key})
			for _, r := range p.SourceRanges {
				first, last := bounds(r)
				put(allowed, element{key: key + first, end: key + last})
			}
		}
	})
}

// shared says which elements a Port has in sets where others may have the same.
func shared(p *model.Port, emit func(element)) {
	emit(element{set: setName{clusterIPs, p.Key.Family}, key: address(p.ClusterIP)})
	for _, list := range [][]model.Endpoint{p.Cluster, p.Local} {
		for _, e := range list {
			if e.Local {
				a := address(e.Addr())
				emit(element{set: setName{hairpins, p.Key.Family}, key: a + a + protocolAndPort(p.Key.Protocol, e.Port())})
			}
		}
	}
}

func (f frontend) key() string { return address(f.address) + protocolAndPort(f.protocol, f.port) }

func address(a netip.Addr) string { return string(a.AsSlice()) }

func protocolAndPort(p model.Protocol, port uint16) string {
	return string([]byte{byte(p), 0, 0, 0, byte(port >> 8), byte(port), 0, 0})
}

// target is an address and a port as they are in registers.
func target(a netip.AddrPort) string {
	return address(a.Addr()) + string([]byte{byte(a.Port() >> 8), byte(a.Port()), 0, 0})
}

func numbers(list ...uint32) string {
	out := make([]byte, 0, 8)
	for _, n := range list {
		out = append(out, binaryutil.NativeEndian.PutUint32(n)...)
	}
	return string(out)
}

// bounds are the first and the last address of a range.
func bounds(p netip.Prefix) (first, last string) {
	a := p.Masked().Addr().AsSlice()
	first = string(a)
	for i := p.Bits(); i < len(a)*8; i++ {
		a[i/8] |= 0x80 >> (i % 8)
	}
	return first, string(a)
}

// encode is an element as netlink has it; deleting needs no more than the key.
func (tx *transaction) encode(e element, adding bool) nftables.SetElement {
	out := nftables.SetElement{Key: []byte(e.key)}
	if e.end != "" {
		out.KeyEnd = []byte(e.end)
	}
	if !adding {
		return out
	}
	switch e.set.role {
	case services, nearby:
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: tx.balance(e.chain)}
	case dead:
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictDrop}
		if e.reject {
			out.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: "reject"}
		}
	default:
		out.Val = []byte(e.value)
	}
	return out
}

// poolOf reads the pool from the key of an element of affinity.
func poolOf(key []byte) uint32 { return binary.NativeEndian.Uint32(key) }
