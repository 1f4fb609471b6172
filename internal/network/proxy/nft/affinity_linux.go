package nft

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"skiff/internal/network/nftkey"
	"skiff/internal/network/proxy/model"
)

// A Port with session affinity has a number, and with it chains and sets of its own:
//
//	stay-N-masquerade, -policy     traffic from outside the cluster, without and with traffic policy Local, which goes to one of:
//	stay-N-cluster, stay-N-local   its pools: first the endpoint that the client is recorded for, if any; otherwise one at random
//	stay-N-ADDRESS-PORT            an endpoint: records the client, and sends the packet there
//	clients-N-ADDRESS-PORT         the recorded clients of an endpoint, each with the affinity timeout
//	pick-N-cluster, pick-N-local   a pool's endpoints by index
//
// These change with the Port. Chains that are no longer needed are left empty, because the kernel may for a while consider deleted elements as
// references to them. They are removed later, if there are many.

// maxEmptyChains is the number of empty chains beyond which they are removed.
const maxEmptyChains = 200

// maxClients bounds the recorded clients of an endpoint; further clients get a random endpoint every time.
const maxClients = 65535

func affinityChain(id uint32, part string) string { return fmt.Sprintf("stay-%08x-%s", id, part) }

func endpointPart(a netip.AddrPort) string {
	return fmt.Sprintf("%x-%d", a.Addr().AsSlice(), a.Port())
}

// affinityEndpoints returns the endpoints of a Port with session affinity, each once; none for other Ports.
func affinityEndpoints(p *model.Port) []netip.AddrPort {
	if p == nil || p.Affinity == 0 {
		return nil
	}
	var out []netip.AddrPort
	for _, list := range [][]model.Endpoint{p.Cluster, p.Local} {
		for _, e := range list {
			out = append(out, e.AddrPort)
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}

// sameAffinity reports whether two Ports have the same affinity chains and sets.
func sameAffinity(a, b *model.Port) bool {
	return a != nil && b != nil && a.Affinity == b.Affinity && a.ExternalLocal == b.ExternalLocal && a.IsExternal() == b.IsExternal() &&
		slices.Equal(a.Cluster, b.Cluster) && slices.Equal(a.Local, b.Local)
}

// writeAffinity writes the affinity chains and sets of a Port in place of those it had. A Port without affinity or endpoints has none.
func (tx *transaction) writeAffinity(id uint32, was, is *model.Port) {
	before, now := affinityEndpoints(was), affinityEndpoints(is)
	if len(before) == 0 && len(now) == 0 || sameAffinity(was, is) {
		return
	}
	// Rules are removed before the sets that they use, and chains are added before the rules that lead to them.
	for _, a := range before {
		tx.flushChain(affinityChain(id, endpointPart(a)))
	}
	for _, part := range []string{"cluster", "local", "masquerade", "policy"} {
		tx.flushChain(affinityChain(id, part))
	}
	port := is
	if port == nil {
		port = was
	}
	f := familyOf(port.Key.Family)
	for _, a := range before {
		if !slices.Contains(now, a) {
			tx.dropSet(tx.clients(f, id, a))
		}
	}
	tx.dropSet(tx.picks(id, "cluster"))
	tx.dropSet(tx.picks(id, "local"))
	if len(now) == 0 {
		return
	}
	for _, a := range now {
		name := affinityChain(id, endpointPart(a))
		tx.ensureChain(name)
		clients := tx.clients(f, id, a)
		if !slices.Contains(before, a) {
			tx.addSet(clients)
		}
		tx.endpoint(f, name, clients, is, a)
	}
	cluster := tx.pool(f, id, "cluster", is.Cluster)
	local := tx.pool(f, id, "local", is.Local)
	switch {
	case !is.IsExternal():
	case is.ExternalLocal:
		name := affinityChain(id, "policy")
		tx.ensureChain(name)
		if cluster != nil {
			tx.fromCluster(name, f, cluster)
		}
		if local != nil {
			tx.rule(name, local)
		}
	case cluster != nil:
		name := affinityChain(id, "masquerade")
		tx.ensureChain(name)
		tx.rule(name, tx.m.setMark(true))
		tx.rule(name, cluster)
	}
}

// endpoint writes the chain of an endpoint.
func (tx *transaction) endpoint(f *family, name string, clients *nftables.Set, p *model.Port, a netip.AddrPort) {
	tx.rule(name, f.matches(), new(nftkey.Load).Header(expr.PayloadBaseNetworkHeader, f.source, f.length).Exprs,
		[]expr.Any{&expr.Dynset{SrcRegKey: nftkey.Register, SetName: clients.Name, SetID: clients.ID, Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: p.Affinity}})
	tx.rule(name, []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(p.Key.Protocol)}},
		&expr.Immediate{Register: nftkey.Register, Data: a.Addr().AsSlice()},
		&expr.Immediate{Register: nftkey.Register + f.words(), Data: []byte{byte(a.Port() >> 8), byte(a.Port())}},
	}, f.redirect())
}

// pool writes the chain of a pool, and returns the expression that goes to it; nil if the pool is empty.
func (tx *transaction) pool(f *family, id uint32, part string, list []model.Endpoint) []expr.Any {
	if len(list) == 0 {
		return nil
	}
	name, picks := affinityChain(id, part), tx.picks(id, part)
	tx.ensureChain(name)
	tx.addSet(picks)
	var elements []nftables.SetElement
	for i, e := range list {
		toEndpoint := gotoChain(affinityChain(id, endpointPart(e.AddrPort)))
		tx.rule(name, f.matches(), new(nftkey.Load).Header(expr.PayloadBaseNetworkHeader, f.source, f.length).Exprs,
			match(tx.clients(f, id, e.AddrPort), false), []expr.Any{toEndpoint})
		elements = append(elements, nftables.SetElement{Key: []byte(number(uint32(i))), VerdictData: toEndpoint})
	}
	for c := range slices.Chunk(elements, chunk) {
		tx.fail(tx.conn.SetAddElements(picks, c))
	}
	tx.rule(name, []expr.Any{&expr.Numgen{Register: nftkey.Register, Modulus: uint32(len(list)), Type: unix.NFT_NG_RANDOM}}, verdictFrom(picks))
	return []expr.Any{gotoChain(name)}
}

func (tx *transaction) picks(id uint32, part string) *nftables.Set {
	return &nftables.Set{Table: tx.m.table, Name: fmt.Sprintf("pick-%08x-%s", id, part), KeyType: nftables.TypeMark, KeyByteOrder: binaryutil.NativeEndian,
		IsMap: true, DataType: nftables.TypeVerdict}
}

func (tx *transaction) clients(f *family, id uint32, a netip.AddrPort) *nftables.Set {
	s := &nftables.Set{Table: tx.m.table, Name: fmt.Sprintf("clients-%08x-%s", id, endpointPart(a)), KeyType: f.address, Dynamic: true, HasTimeout: true, Size: maxClients}
	s.ID = tx.m.affinitySets[s.Name]
	return s
}

// addSet adds an affinity set, with the clients that it had in the replaced table.
func (tx *transaction) addSet(s *nftables.Set) {
	tx.m.setIDs++
	s.ID = tx.m.setIDs
	tx.m.affinitySets[s.Name] = s.ID
	tx.fail(tx.conn.AddSet(s, nil))
	var list []nftables.SetElement
	for _, e := range tx.oldClients[s.Name] {
		if e.Expires >= minClientTimeout {
			list = append(list, nftables.SetElement{Key: e.Key, Timeout: e.Expires})
		}
	}
	for c := range slices.Chunk(list, chunk) {
		tx.fail(tx.conn.SetAddElements(s, c))
	}
}

// dropSet removes an affinity set, if it exists.
func (tx *transaction) dropSet(s *nftables.Set) {
	if id, ok := tx.m.affinitySets[s.Name]; ok {
		s.ID = id
		delete(tx.m.affinitySets, s.Name)
		tx.conn.DelSet(s)
	}
}

// flushChain removes all rules from a chain, if it exists.
func (tx *transaction) flushChain(name string) {
	if _, ok := tx.m.chains[name]; ok {
		if _, already := tx.m.empty[name]; !already {
			tx.conn.FlushChain(&nftables.Chain{Name: name, Table: tx.m.table})
			tx.m.empty[name] = struct{}{}
		}
	}
}

// ensureChain adds a chain if it does not exist. Rules must follow.
func (tx *transaction) ensureChain(name string) {
	if _, ok := tx.m.chains[name]; !ok {
		tx.chain(name)
	}
	delete(tx.m.empty, name)
}
