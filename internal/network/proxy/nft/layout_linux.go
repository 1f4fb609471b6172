package nft

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"skiff/internal/network/nftkey"
	"skiff/internal/network/proxy/model"
)

// tableName is the name of the proxy's table; nothing outside of it is changed.
const tableName = "skiff-proxy"

// family describes the IP header and the set types of an address family.
type family struct {
	is           model.Family
	proto        byte
	source, dest uint32 // the offsets of the addresses in the header
	length       uint32 // the length of an address
	address      nftables.SetDatatype
	loopback     netip.Prefix
}

var families = []*family{
	{model.IPv4, unix.NFPROTO_IPV4, 12, 16, 4, nftables.TypeIPAddr, netip.MustParsePrefix("127.0.0.0/8")},
	{model.IPv6, unix.NFPROTO_IPV6, 8, 24, 16, nftables.TypeIP6Addr, netip.MustParsePrefix("::1/128")},
}

func familyOf(f model.Family) *family {
	if f == model.IPv4 {
		return families[0]
	}
	return families[1]
}

// words returns the number of four-byte registers that an address takes.
func (f *family) words() uint32 { return f.length / 4 }

// role is the purpose of a set or map. There is one of each role for each family.
type role uint8

const (
	services         role = iota // frontend to chain
	endpoints                    // frontend and index to address and port
	clusterEndpoints             // likewise, for clients in the cluster of frontends with external traffic policy Local
	noEndpoints                  // frontend to drop or reject
	nodePorts                    // the following four are the same for node ports, whose frontends have no address
	nodePortEndpoints
	clusterNodePortEndpoints
	noEndpointNodePorts
	clusterIPs
	hairpins   // endpoints on this node as their own clients
	restricted // frontends with source ranges
	allowed    // frontend and source range that may reach it
	roles
)

var roleNames = [roles]string{"services", "endpoints", "near-endpoints", "no-endpoints",
	"nodeports", "nodeport-endpoints", "near-nodeport-endpoints", "no-endpoint-nodeports", "cluster-ips", "hairpins", "fenced", "allowed"}

// forNodePorts is added to a role of frontends with addresses to get the role for node ports.
const forNodePorts = nodePorts - services

// sets returns the definitions of all sets. Their IDs are chosen freely: they are valid within a transaction.
func sets(table *nftables.Table) (out [2][roles]*nftables.Set) {
	concat := nftables.MustConcatSetType
	id := uint32(1)
	for i, f := range families {
		target := concat(f.address, nftables.TypeInetService)
		add := func(r role, data *nftables.SetDatatype, key ...nftables.SetDatatype) *nftables.Set {
			s := &nftables.Set{Table: table, ID: id, Name: fmt.Sprintf("%s%d", roleNames[r], f.is), KeyType: concat(key...), Concatenation: len(key) > 1}
			if data != nil {
				s.IsMap, s.DataType = true, *data
			}
			id++
			out[i][r] = s
			return s
		}
		frontend := []nftables.SetDatatype{f.address, nftables.TypeInetProto, nftables.TypeInetService}
		for _, shift := range []role{0, forNodePorts} {
			if shift > 0 {
				frontend = frontend[1:]
			}
			add(services+shift, &nftables.TypeVerdict, frontend...)
			add(endpoints+shift, &target, append(slices.Clone(frontend), nftables.TypeMark)...)
			add(clusterEndpoints+shift, &target, append(slices.Clone(frontend), nftables.TypeMark)...)
			add(noEndpoints+shift, &nftables.TypeVerdict, frontend...)
		}
		add(clusterIPs, nil, f.address)
		add(hairpins, nil, f.address, f.address, nftables.TypeInetProto, nftables.TypeInetService)
		add(restricted, nil, f.address, nftables.TypeInetProto, nftables.TypeInetService)
		add(allowed, nil, f.address, nftables.TypeInetProto, nftables.TypeInetService, f.address).Interval = true
	}
	return out
}

// layout writes the chains and rules that do not depend on Services.
func (tx *transaction) layout(state *model.State) {
	m := tx.m
	base := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority nftables.ChainPriority) string {
		tx.conn.AddChain(&nftables.Chain{Name: name, Table: m.table, Type: kind, Hooknum: hook, Priority: &priority})
		m.chains[name] = struct{}{}
		delete(m.empty, name)
		return name
	}
	filter, nat := nftables.ChainTypeFilter, nftables.ChainTypeNAT
	early := *nftables.ChainPriorityNATDest - 10
	tx.ensureChain("fence")
	tx.ensureChain("reject")
	tx.ensureChain("check-node-ports")
	tx.ensureChain("check-services")
	tx.ensureChain("check-cluster-ips")
	tx.ensureChain("dispatch")
	// TCP connections are reset, because the kernel limits the rate of ICMP messages.
	tx.rule("reject", []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(model.TCP)}},
		&expr.Reject{Type: unix.NFT_REJECT_TCP_RST},
	})
	tx.rule("reject", []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}})
	tx.rule(base("fence-prerouting", filter, nftables.ChainHookPrerouting, early), isNew(), jump("fence"))
	tx.rule(base("fence-output", filter, nftables.ChainHookOutput, early), isNew(), jump("fence"))
	input := base("filter-input", filter, nftables.ChainHookInput, *nftables.ChainPriorityFilter)
	tx.rule(input, isNew(), jump("check-node-ports"))
	tx.rule(input, isNew(), jump("check-services"))
	for _, name := range []string{base("filter-forward", filter, nftables.ChainHookForward, *nftables.ChainPriorityFilter),
		base("filter-output", filter, nftables.ChainHookOutput, *nftables.ChainPriorityFilter)} {
		tx.rule(name, isNew(), jump("check-services"))
		tx.rule(name, isNew(), jump("check-cluster-ips"))
	}
	tx.rule(base("nat-prerouting", nat, nftables.ChainHookPrerouting, *nftables.ChainPriorityNATDest), jump("dispatch"))
	tx.rule(base("nat-output", nat, nftables.ChainHookOutput, *nftables.ChainPriorityNATDest), jump("dispatch"))
	back := base("nat-postrouting", nat, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource)
	// The mark is cleared first: a VXLAN packet that encapsulates this one would inherit it.
	tx.rule(back, m.isMarked(), m.setMark(false), masquerade())
	for i, f := range families {
		tx.familyRules(f, m.sets[i], state, back)
	}
}

func (tx *transaction) familyRules(f *family, sets [roles]*nftables.Set, state *model.State, back string) {
	m := tx.m
	is := f.matches()

	tx.rule("fence", is, f.frontend(byAddress).Exprs, match(sets[restricted], false),
		f.frontend(byAddress).Header(expr.PayloadBaseNetworkHeader, f.source, f.length).Exprs, match(sets[allowed], true), drop())

	tx.rule("check-services", is, f.frontend(byAddress).Exprs, verdictFrom(sets[noEndpoints]))
	tx.rule("check-cluster-ips", is, f.destination(), match(sets[clusterIPs], false), []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: "reject"}})
	for _, p := range state.ServiceCIDRs {
		if model.FamilyOf(p.Addr()) == f.is {
			tx.rule("check-cluster-ips", is, f.to(p), drop())
		}
	}

	// Traffic from outside the cluster to a cluster IP is masqueraded, so that answers come back through this node.
	outside := slices.Clone(is)
	for _, p := range m.clusterCIDRs(f) {
		outside = append(outside, f.from(p, expr.CmpOpNeq)...)
	}
	switch {
	case m.config.MasqueradeAll:
		tx.rule("dispatch", is, f.destination(), match(sets[clusterIPs], false), m.setMark(true))
	case len(outside) > len(is):
		tx.rule("dispatch", outside, f.destination(), match(sets[clusterIPs], false), m.setMark(true))
	}
	tx.rule("dispatch", is, f.frontend(byAddress).Exprs, verdictFrom(sets[services]))
	for _, where := range m.nodePortAddresses(f) {
		tx.rule("check-node-ports", is, where, f.frontend(byNodePort).Exprs, verdictFrom(sets[noEndpointNodePorts]))
		tx.rule("dispatch", is, where, f.frontend(byNodePort).Exprs, verdictFrom(sets[nodePorts]))
	}

	// A pod that connects to itself through its Service must not see its own address as the source.
	tx.rule(back, is, isDNATed(), new(nftkey.Load).Header(expr.PayloadBaseNetworkHeader, f.source, f.length).
		Header(expr.PayloadBaseNetworkHeader, f.dest, f.length).Protocol().Port().Exprs, match(sets[hairpins], false), masquerade())
}

// clusterCIDRs returns the cluster CIDRs of a family.
func (m *Mode) clusterCIDRs(f *family) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range m.config.ClusterCIDRs {
		if model.FamilyOf(p.Addr()) == f.is {
			out = append(out, p)
		}
	}
	return out
}

// nodePortAddresses returns a match for each of the addresses or ranges at which node ports answer.
func (m *Mode) nodePortAddresses(f *family) [][]expr.Any {
	ranges, everywhere := m.config.NodePortRanges(f.is)
	local := slices.Concat(f.notTo(f.loopback), []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	})
	if everywhere {
		return [][]expr.Any{local}
	}
	var out [][]expr.Any
	for _, p := range ranges {
		if p.Overlaps(f.loopback) {
			continue
		}
		match := f.to(p)
		if !p.IsSingleIP() {
			match = slices.Concat(match, local)
		}
		out = append(out, match)
	}
	return out
}

// matches returns a match for packets of the family. Where no others can come it is still written, so that nft lists the fields that follow by name.
func (f *family) matches() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.proto}}}
}

func (f *family) to(p netip.Prefix) []expr.Any    { return f.within(p, f.dest, expr.CmpOpEq) }
func (f *family) notTo(p netip.Prefix) []expr.Any { return f.within(p, f.dest, expr.CmpOpNeq) }
func (f *family) from(p netip.Prefix, op expr.CmpOp) []expr.Any {
	return f.within(p, f.source, op)
}

func (f *family) within(p netip.Prefix, offset uint32, op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.length},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: f.length, Mask: net.CIDRMask(p.Bits(), int(f.length)*8), Xor: make([]byte, f.length)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}
