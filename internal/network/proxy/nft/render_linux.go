package nft

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"skiff/internal/network/proxy/model"
)

// frontend is what packets are addressed to. Node ports have no address.
type frontend struct {
	address  netip.Addr
	family   model.Family
	protocol model.Protocol
	port     uint16
}

func (f frontend) by() by {
	if f.address.IsValid() {
		return byAddress
	}
	return byNodePort
}

// element is an element of a set, with what it leads to: a value, or a chain.
type element struct {
	set    setName
	key    string
	end    string // of a range
	value  string
	chain  balancer // for services and the like
	reject bool     // for dead; what is not rejected is dropped
}

// setName is a set of a family.
type setName struct {
	role   role
	family model.Family
}

// frontends are all that a Port is reached at.
func frontends(p *model.Port, each func(f frontend, external, balancer bool)) {
	each(frontend{p.ClusterIP, p.Key.Family, p.Key.Protocol, p.Port}, false, false)
	for i, a := range p.ExternalAddresses() {
		each(frontend{a, p.Key.Family, p.Key.Protocol, p.Port}, true, i >= len(p.ExternalIPs) || slices.Contains(p.LoadBalancerIPs, a))
	}
	if p.NodePort != 0 {
		each(frontend{netip.Addr{}, p.Key.Family, p.Key.Protocol, p.NodePort}, true, false)
	}
}

// render says which elements a Port has in the sets where nobody else has the same: those of frontends that are its own. id is its number, if it has
// session affinity.
func render(p *model.Port, id uint32, owns func(frontend) bool, emit func(element)) {
	frontends(p, func(f frontend, external, balanced bool) {
		if !owns(f) {
			return
		}
		by, key := f.by(), f.key()
		put := func(r role, e element) {
			e.set = setName{r, p.Key.Family}
			emit(e)
		}
		targets := func(r role, list []model.Endpoint) int {
			if p.Affinity == 0 {
				for i, e := range list {
					put(by.role(r), element{key: key + number(uint32(i)), value: target(e.AddrPort)})
				}
			}
			return len(list)
		}
		b := balancer{family: p.Key.Family, by: by}
		fate, list := p.Internal()
		local := p.InternalLocal
		if external {
			fate, list = p.External()
			local, b.policy, b.masquerade = p.ExternalLocal, p.ExternalLocal, !p.ExternalLocal
		}
		if b.count = targets(endpoints, list); b.policy {
			_, near := p.Near()
			b.near = targets(nearEndpoints, near)
		}
		if p.Affinity != 0 {
			b = balancer{stays: true, id: id, policy: b.policy, masquerade: b.masquerade, local: local}
		}
		if fate == model.Forward || b.policy && fate == model.Drop { // which is not for clients in the cluster
			put(by.role(services), element{key: key, chain: b})
		}
		if fate != model.Forward {
			put(by.role(dead), element{key: key, reject: fate == model.Reject})
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

// key is a frontend as it is in registers.
func (f frontend) key() string { return address(f.address) + protocolAndPort(f.protocol, f.port) }

func address(a netip.Addr) string { return string(a.AsSlice()) }

func protocolAndPort(p model.Protocol, port uint16) string {
	return string([]byte{byte(p), 0, 0, 0, byte(port >> 8), byte(port), 0, 0})
}

// target is an address and a port as they are in registers.
func target(a netip.AddrPort) string {
	return address(a.Addr()) + string([]byte{byte(a.Port() >> 8), byte(a.Port()), 0, 0})
}

func number(n uint32) string { return string(binaryutil.NativeEndian.PutUint32(n)) }

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
	case services, nodePorts:
		out.VerdictData = leadTo(tx.balance(e.chain))
	case dead, deadNodePorts:
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictDrop}
		if e.reject {
			out.VerdictData = leadTo("reject")
		}
	default:
		out.Val = []byte(e.value)
	}
	return out
}

func leadTo(chain string) *expr.Verdict { return &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain} }
