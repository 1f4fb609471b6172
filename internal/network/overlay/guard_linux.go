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
	// guardTable is the nftables table that drops wrapped packets which do not come from nodes.
	guardTable = "skiff-overlay"
	guardChain = "input"
	// maxElements is how many elements of a set are written in one message, which has at most 64 KiB.
	maxElements = 500
)

// guardFamily is how source addresses of a family are matched.
type guardFamily struct {
	set            string
	proto          byte
	offset, length uint32 // of the source address in the header
	kind           nftables.SetDatatype
}

var guardFamilies = []guardFamily{
	{"nodes-ipv4", unix.NFPROTO_IPV4, 12, 4, nftables.TypeIPAddr},
	{"nodes-ipv6", unix.NFPROTO_IPV6, 8, 16, nftables.TypeIP6Addr},
}

// guard has the kernel take wrapped packets from the addresses of nodes alone. Kernels wrap and unwrap for whoever sends to the port, so that anybody who reaches a
// node could send packets to its pods, and as any pod. The rules are there before the interface is; the addresses follow the nodes.
func (k *kernel) guard(sources map[netip.Addr]bool) error {
	if k.settings.device() == "" {
		return nil
	}
	if k.have.sources == nil { // skiff has just been started, or the rules are not as they were left
		k.have.sources, _ = readGuard(k.guardComment()) // without rules that can be read they are written anew
	}
	if k.have.sources != nil && maps.Equal(k.have.sources, sources) {
		return nil
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	if k.have.sources == nil {
		err = k.newGuard(c, sources)
	} else {
		err = changeGuard(c, k.have.sources, sources)
	}
	if err == nil {
		err = c.Flush()
	}
	if err != nil {
		k.have.sources = nil
		return fmt.Errorf("nftables table %s, which keeps packets out that do not come from nodes: %w", guardTable, err)
	}
	k.have.sources = maps.Clone(sources)
	k.count("source", "set")
	return nil
}

// newGuard replaces the whole table.
func (k *kernel) newGuard(c *nftables.Conn, sources map[netip.Addr]bool) error {
	table := nfttable.Anew(c, nftables.TableFamilyINet, guardTable)
	chain := c.AddChain(&nftables.Chain{Name: guardChain, Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter})
	for _, f := range guardFamilies {
		set := &nftables.Set{Table: table, Name: f.set, KeyType: f.kind}
		if err := c.AddSet(set, nil); err != nil {
			return err
		}
		if err := inChunks(c.SetAddElements, set, f.elements(sources, nil)); err != nil {
			return err
		}
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, UserData: userdata.AppendString(nil, userdata.TypeComment, k.guardComment()), Exprs: slices.Concat(k.wrapped(), []expr.Any{
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.proto}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: f.offset, Len: f.length},
			&expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID, Invert: true},
			&expr.Counter{},
			&expr.Verdict{Kind: expr.VerdictDrop},
		})})
	}
	return nil
}

// guardComment is the comment of our rules. It says which packets they match, so that rules which another port or network needs are not taken for right.
func (k *kernel) guardComment() string {
	if k.settings.backend == UDP {
		return fmt.Sprintf("skiff overlay udp port %d", k.udpPort)
	}
	return fmt.Sprintf("skiff overlay vxlan port %d network %d", k.vxlanPort, k.vni)
}

// wrapped matches the packets of our backend. Another overlay may have the same port, with another VXLAN network: its packets are not ours to drop.
func (k *kernel) wrapped() []expr.Any {
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

// changeGuard adds and removes addresses.
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

// elements are the addresses of the family that are in one set and not in another.
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

// lookAtGuard finds out which addresses packets are taken from; none are known if the rules are not as they must be, and the table is written anew.
func (k *kernel) lookAtGuard() {
	if k.settings.device() != "" {
		k.have.sources, _ = readGuard(k.guardComment())
	}
}

// readGuard returns the addresses that packets are taken from, or an error if the rules are not there.
func readGuard(comment string) (map[netip.Addr]bool, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	table := &nftables.Table{Name: guardTable, Family: nftables.TableFamilyINet}
	rules, err := c.GetRules(table, &nftables.Chain{Name: guardChain, Table: table})
	if err != nil {
		return nil, err
	}
	if len(rules) != len(guardFamilies) {
		return nil, fmt.Errorf("there are %d rules in nftables table %s, not %d", len(rules), guardTable, len(guardFamilies))
	}
	for _, rule := range rules {
		if found, _ := userdata.GetString(rule.UserData, userdata.TypeComment); found != comment {
			return nil, fmt.Errorf("a rule in nftables table %s is for %q, not for %q", guardTable, found, comment)
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

// removeGuard removes the table.
func removeGuard() error { return nfttable.Remove(nftables.TableFamilyINet, guardTable) }
