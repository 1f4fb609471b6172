package nft

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"skiff/internal/network/proxy/model"
)

// frontend is an address, protocol and port that clients connect to. Node ports have no address.
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

// element is an element of a set or map, whose value is data or a chain.
type element struct {
	set    setName
	key    string
	end    string // the last key, if the element is an interval
	value  string
	chain  balancer // the value in maps of services
	reject bool     // the value in maps of frontends without endpoints: reject or drop
}

// setName identifies a set by its role and family.
type setName struct {
	role   role
	family model.Family
}

// frontends calls each for every frontend of a Port, and says whether it is external and whether it is a load balancer's.
func frontends(p *model.Port, each func(f frontend, external, balancer bool)) {
	each(frontend{p.ClusterIP, p.Key.Family, p.Key.Protocol, p.Port}, false, false)
	for i, a := range p.ExternalAddresses() {
		each(frontend{a, p.Key.Family, p.Key.Protocol, p.Port}, true, i >= len(p.ExternalIPs) || slices.Contains(p.LoadBalancerIPs, a))
	}
	if p.NodePort != 0 {
		each(frontend{netip.Addr{}, p.Key.Family, p.Key.Protocol, p.NodePort}, true, false)
	}
}

// render emits the elements of a Port that belong to it alone: those of the frontends that it owns. id is its number if it has session affinity.
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
		verdict, list := p.Internal()
		local := p.InternalLocal
		if external {
			verdict, list = p.External()
			local, b.policy, b.masquerade = p.ExternalLocal, p.ExternalLocal, !p.ExternalLocal
		}
		if b.count = targets(endpoints, list); b.policy {
			_, fromCluster := p.ExternalFromCluster()
			b.fromCluster = targets(clusterEndpoints, fromCluster)
		}
		if p.Affinity != 0 {
			b = balancer{affinity: true, id: id, policy: b.policy, masquerade: b.masquerade, local: local}
		}
		if verdict == model.Forward || b.policy && verdict == model.Drop { // Drop does not apply to clients in the cluster
			put(by.role(services), element{key: key, chain: b})
		}
		if verdict != model.Forward {
			put(by.role(noEndpoints), element{key: key, reject: verdict == model.Reject})
		}
		if balanced && len(p.SourceRanges) > 0 {
			put(restricted, element{key: key})
			for _, r := range p.SourceRanges {
				first, last := bounds(r)
				put(allowed, element{key: key + first, end: key + last})
			}
		}
	})
}

// shared emits the elements of a Port that other Ports may have too.
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

// key returns a frontend as it is encoded in registers.
func (f frontend) key() string { return address(f.address) + protocolAndPort(f.protocol, f.port) }

func address(a netip.Addr) string { return string(a.AsSlice()) }

func protocolAndPort(p model.Protocol, port uint16) string {
	return string([]byte{byte(p), 0, 0, 0, byte(port >> 8), byte(port), 0, 0})
}

// target returns an address and a port as they are encoded in registers.
func target(a netip.AddrPort) string {
	return address(a.Addr()) + string([]byte{byte(a.Port() >> 8), byte(a.Port()), 0, 0})
}

func number(n uint32) string { return string(binaryutil.NativeEndian.PutUint32(n)) }

// bounds returns the first and the last address of a range.
func bounds(p netip.Prefix) (first, last string) {
	a := p.Masked().Addr().AsSlice()
	first = string(a)
	for i := p.Bits(); i < len(a)*8; i++ {
		a[i/8] |= 0x80 >> (i % 8)
	}
	return first, string(a)
}

// encode returns the netlink form of an element, and adds the chain that it leads to; only the key is needed to delete it.
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
		out.VerdictData = gotoChain(tx.balance(e.chain))
	case noEndpoints, noEndpointNodePorts:
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictDrop}
		if e.reject {
			out.VerdictData = gotoChain("reject")
		}
	default:
		out.Val = []byte(e.value)
	}
	return out
}

func gotoChain(chain string) *expr.Verdict {
	return &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}
}
