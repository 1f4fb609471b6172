package overlay

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"skiff/internal/network/nfttable"
)

const (
	// guardTable is the nftables table that drops encapsulated packets which do not come from nodes.
	guardTable = "skiff-overlay"
	// maxElements bounds the elements of a set in one netlink message, which has at most 64 KiB.
	maxElements = 500
)

// guardFamily describes how the addresses of one IP family are matched.
type guardFamily struct {
	set                         string
	proto                       byte
	source, destination, length uint32 // where the addresses are in the IP header
	kind                        nftables.SetDatatype
}

var guardFamilies = []guardFamily{
	{"nodes-ipv4", unix.NFPROTO_IPV4, 12, 16, 4, nftables.TypeIPAddr},
	{"nodes-ipv6", unix.NFPROTO_IPV6, 8, 24, 16, nftables.TypeIP6Addr},
}

// guardChain is a chain of the table with one rule for each family, which drops the encapsulated packets whose source is not a node's, or whose destination is.
type guardChain struct {
	name    string
	hook    *nftables.ChainHook
	toANode bool // the destination is matched, not the source
}

// guardChains are the chains of the table. What pods send to other nodes is masqueraded, so that the other node takes it for this node's own: it is dropped here, where
// it is forwarded.
var guardChains = []guardChain{
	{name: "input", hook: nftables.ChainHookInput},
	{name: "forward", hook: nftables.ChainHookForward, toANode: true},
}

// guard makes the kernel accept encapsulated packets only from sources, the addresses of nodes, and forward none to them. Without it the kernel decapsulates what
// anybody sends to the port, so that anybody who reaches a node could send packets to its pods, and as any pod.
func (k *kernel) guard(sources map[netip.Addr]bool) error {
	if k.settings.device() == "" {
		return nil
	}
	if k.current.sources == nil { // skiff has just started, or the rules were changed by somebody else
		k.current.sources, _ = readGuard(k.guardComment()) // on an error the table is replaced below
	}
	if k.current.sources != nil && maps.Equal(k.current.sources, sources) {
		return nil
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	if k.current.sources == nil {
		err = k.newGuard(c, sources)
	} else {
		err = changeGuard(c, k.current.sources, sources)
	}
	if err == nil {
		err = c.Flush()
	}
	if err != nil {
		k.current.sources = nil
		return fmt.Errorf("failed to write nftables table %s, which drops overlay packets that do not come from nodes: %w", guardTable, err)
	}
	k.current.sources = maps.Clone(sources)
	k.count("source", "set")
	return nil
}

// newGuard replaces the whole table.
func (k *kernel) newGuard(c *nftables.Conn, sources map[netip.Addr]bool) error {
	table := nfttable.Anew(c, nftables.TableFamilyINet, guardTable)
	sets := map[string]*nftables.Set{}
	for _, f := range guardFamilies {
		set := &nftables.Set{Table: table, Name: f.set, KeyType: f.kind}
		if err := c.AddSet(set, nil); err != nil {
			return err
		}
		if err := inChunks(c.SetAddElements, set, f.elements(sources, nil)); err != nil {
			return err
		}
		sets[f.set] = set
	}
	for _, g := range guardChains {
		chain := c.AddChain(&nftables.Chain{Name: g.name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: g.hook, Priority: nftables.ChainPriorityFilter})
		for _, f := range guardFamilies {
			offset := f.source
			if g.toANode {
				offset = f.destination
			}
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, UserData: userdata.AppendString(nil, userdata.TypeComment, k.guardComment()), Exprs: slices.Concat(k.encapsulated(), []expr.Any{
				&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.proto}},
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.length},
				&expr.Lookup{SourceRegister: 1, SetName: f.set, SetID: sets[f.set].ID, Invert: !g.toANode},
				&expr.Counter{},
				&expr.Verdict{Kind: expr.VerdictDrop},
			})})
		}
	}
	return nil
}

// guardComment returns the comment of the guard's rules. It names the port and VNI, so that rules for others are recognised and replaced.
func (k *kernel) guardComment() string {
	if k.settings.backend == UDP {
		return fmt.Sprintf("skiff overlay udp port %d", k.udpPort)
	}
	return fmt.Sprintf("skiff overlay vxlan port %d network %d", k.vxlanPort, k.vni)
}

// encapsulated returns expressions that match the encapsulated packets of the backend. The VNI is matched too, because another overlay may use
// the same port with another VNI.
func (k *kernel) encapsulated() []expr.Any {
	port := k.vxlanPort
	if k.settings.backend == UDP {
		port = k.udpPort
	}
	match := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, uint16(port))},
	}
	if k.settings.backend == UDP {
		return match
	}
	const vniOffset = udpHeader + 4 // after the flags of the VXLAN header
	vni := binary.BigEndian.AppendUint32(nil, uint32(k.vni))[1:]
	return append(match, &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: vniOffset, Len: uint32(len(vni))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: vni})
}

// changeGuard changes the sets of addresses from have to want.
func changeGuard(c *nftables.Conn, have, want map[netip.Addr]bool) error {
	table := &nftables.Table{Name: guardTable, Family: nftables.TableFamilyINet}
	for _, f := range guardFamilies {
		set := &nftables.Set{Table: table, Name: f.set, KeyType: f.kind}
		if err := inChunks(c.SetAddElements, set, f.elements(want, have)); err != nil {
			return err
		}
		if err := inChunks(c.SetDeleteElements, set, f.elements(have, want)); err != nil {
			return err
		}
	}
	return nil
}

// elements returns the addresses of the family that are in one map and not in the other.
func (f guardFamily) elements(in, but map[netip.Addr]bool) (out []nftables.SetElement) {
	for ip := range in {
		if !but[ip] && ip.BitLen() == int(f.length)*8 {
			out = append(out, nftables.SetElement{Key: ip.AsSlice()})
		}
	}
	return out
}

func inChunks(do func(*nftables.Set, []nftables.SetElement) error, set *nftables.Set, all []nftables.SetElement) error {
	for chunk := range slices.Chunk(all, maxElements) {
		if err := do(set, chunk); err != nil {
			return err
		}
	}
	return nil
}

// refreshGuard reads the accepted source addresses from the kernel. If the rules are missing or wrong the addresses become nil, and the next
// call of guard replaces the table.
func (k *kernel) refreshGuard() {
	if k.settings.device() != "" {
		k.current.sources, _ = readGuard(k.guardComment())
	}
}

// readGuard returns the accepted source addresses, or an error if the rules with the comment are not there.
func readGuard(comment string) (map[netip.Addr]bool, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	table := &nftables.Table{Name: guardTable, Family: nftables.TableFamilyINet}
	for _, g := range guardChains {
		rules, err := c.GetRules(table, &nftables.Chain{Name: g.name, Table: table})
		if err != nil {
			return nil, err
		}
		if len(rules) != len(guardFamilies) {
			return nil, fmt.Errorf("there are %d rules in chain %s of nftables table %s, not %d", len(rules), g.name, guardTable, len(guardFamilies))
		}
		for _, rule := range rules {
			if found, _ := userdata.GetString(rule.UserData, userdata.TypeComment); found != comment {
				return nil, fmt.Errorf("a rule in nftables table %s is for %q, not for %q", guardTable, found, comment)
			}
		}
	}
	found := map[netip.Addr]bool{}
	for _, f := range guardFamilies {
		elements, err := c.GetSetElements(&nftables.Set{Table: table, Name: f.set, KeyType: f.kind})
		if err != nil {
			return nil, err
		}
		for _, e := range elements {
			if ip, ok := netip.AddrFromSlice(e.Key); ok {
				found[ip] = true
			}
		}
	}
	return found, nil
}

// removeGuard removes the nftables table.
func removeGuard() error { return nfttable.Remove(nftables.TableFamilyINet, guardTable) }
