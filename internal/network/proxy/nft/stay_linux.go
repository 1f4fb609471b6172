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
//	stay-N-masquerade, -policy     what comes from outside the cluster, without and with a traffic policy, to one of:
//	stay-N-cluster, stay-N-local   its pools: first, for each endpoint, whether the client is one of its clients; then one at random
//	stay-N-ADDRESS-PORT            an endpoint: notes the client, and sends there
//	clients-N-ADDRESS-PORT         the clients of an endpoint, each for as long as it is to stay
//	pick-N-cluster, pick-N-local   a pool's endpoints by index
//
// These change with the Port. Chains that are not needed any more are left empty: a kernel may think for a while that elements which are gone
// still lead there. They are removed later, if there are many.

// maxEmpty is how many empty chains are too many.
const maxEmpty = 200

// clientLimit is how many clients an endpoint has at most; those beyond are balanced anew every time.
const clientLimit = 65535

func stayName(id uint32, part string) string { return fmt.Sprintf("stay-%08x-%s", id, part) }

func endpointPart(a netip.AddrPort) string {
	return fmt.Sprintf("%x-%d", a.Addr().AsSlice(), a.Port())
}

// stays are the endpoints of a Port that has affinity, each once.
func stays(p *model.Port) []netip.AddrPort {
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

// sameStay reports whether two Ports have the same chains and sets.
func sameStay(a, b *model.Port) bool {
	return a != nil && b != nil && a.Affinity == b.Affinity && a.ExternalLocal == b.ExternalLocal && a.IsExternal() == b.IsExternal() &&
		slices.Equal(a.Cluster, b.Cluster) && slices.Equal(a.Local, b.Local)
}

// stay writes the chains and sets of a Port in place of those it had. A Port without affinity or endpoints has none.
func (tx *transaction) stay(id uint32, was, is *model.Port) {
	before, now := stays(was), stays(is)
	if len(before) == 0 && len(now) == 0 || sameStay(was, is) {
		return
	}
	// All rules go before any set does, and all chains come before any rule that leads there.
	for _, a := range before {
		tx.emptied(stayName(id, endpointPart(a)))
	}
	for _, part := range []string{"cluster", "local", "masquerade", "policy"} {
		tx.emptied(stayName(id, part))
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
		name := stayName(id, endpointPart(a))
		tx.refill(name)
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
		name := stayName(id, "policy")
		tx.refill(name)
		if cluster != nil {
			tx.near(name, f, cluster)
		}
		if local != nil {
			tx.rule(name, local)
		}
	case cluster != nil:
		name := stayName(id, "masquerade")
		tx.refill(name)
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

// pool writes the chain of a pool, and returns how to get there.
func (tx *transaction) pool(f *family, id uint32, part string, list []model.Endpoint) []expr.Any {
	if len(list) == 0 {
		return nil
	}
	name, picks := stayName(id, part), tx.picks(id, part)
	tx.refill(name)
	tx.addSet(picks)
	var elements []nftables.SetElement
	for i, e := range list {
		there := leadTo(stayName(id, endpointPart(e.AddrPort)))
		tx.rule(name, f.matches(), new(nftkey.Load).Header(expr.PayloadBaseNetworkHeader, f.source, f.length).Exprs,
			match(tx.clients(f, id, e.AddrPort), false), []expr.Any{there})
		elements = append(elements, nftables.SetElement{Key: []byte(number(uint32(i))), VerdictData: there})
	}
	for c := range slices.Chunk(elements, chunk) {
		tx.try(tx.conn.SetAddElements(picks, c))
	}
	tx.rule(name, []expr.Any{&expr.Numgen{Register: nftkey.Register, Modulus: uint32(len(list)), Type: unix.NFT_NG_RANDOM}}, follow(picks))
	return []expr.Any{leadTo(name)}
}

func (tx *transaction) picks(id uint32, part string) *nftables.Set {
	return &nftables.Set{Table: tx.m.table, Name: fmt.Sprintf("pick-%08x-%s", id, part), KeyType: nftables.TypeMark, KeyByteOrder: binaryutil.NativeEndian,
		IsMap: true, DataType: nftables.TypeVerdict}
}

func (tx *transaction) clients(f *family, id uint32, a netip.AddrPort) *nftables.Set {
	s := &nftables.Set{Table: tx.m.table, Name: fmt.Sprintf("clients-%08x-%s", id, endpointPart(a)), KeyType: f.address, Dynamic: true, HasTimeout: true, Size: clientLimit}
	s.ID = tx.m.own[s.Name]
	return s
}

// addSet adds a set of a Port, with the clients that it had in a table before this one.
func (tx *transaction) addSet(s *nftables.Set) {
	tx.m.setIDs++
	s.ID = tx.m.setIDs
	tx.m.own[s.Name] = s.ID
	tx.try(tx.conn.AddSet(s, nil))
	var list []nftables.SetElement
	for _, e := range tx.remembered[s.Name] {
		if e.Expires >= minLife {
			list = append(list, nftables.SetElement{Key: e.Key, Timeout: e.Expires})
		}
	}
	for c := range slices.Chunk(list, chunk) {
		tx.try(tx.conn.SetAddElements(s, c))
	}
}

// dropSet removes a set of a Port, if it is there.
func (tx *transaction) dropSet(s *nftables.Set) {
	if id, ok := tx.m.own[s.Name]; ok {
		s.ID = id
		delete(tx.m.own, s.Name)
		tx.conn.DelSet(s)
	}
}

// emptied takes all rules from a chain, if it is there.
func (tx *transaction) emptied(name string) {
	if _, ok := tx.m.chains[name]; ok {
		if _, already := tx.m.empty[name]; !already {
			tx.conn.FlushChain(&nftables.Chain{Name: name, Table: tx.m.table})
			tx.m.empty[name] = struct{}{}
		}
	}
}

// refill has a chain be there, for rules to come.
func (tx *transaction) refill(name string) {
	if _, ok := tx.m.chains[name]; !ok {
		tx.chain(name)
	}
	delete(tx.m.empty, name)
}
