package local

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"skiff/internal/network/nfttable"
)

// masquerade adds an nftables table that masquerades what nodes send to others than nodes.
func (l *Layout) masquerade() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := nfttable.Anew(c, nftables.TableFamilyIPv4, l.device())
	chain := c.AddChain(&nftables.Chain{Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
	const source, destination = 12, 16
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: slices.Concat(within(source, expr.CmpOpEq, l.Subnet), within(destination, expr.CmpOpNeq, l.Subnet), []expr.Any{&expr.Masq{}})})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("failed to write nftables table %s: %w", l.device(), err)
	}
	return nil
}

// within returns expressions that compare the network of an address in the packet.
func within(offset uint32, op expr.CmpOp, p netip.Prefix) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: net.CIDRMask(p.Bits(), 32), Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}

// removeTable removes the cluster's table on this machine.
func (l *Layout) removeTable() error { return nfttable.Remove(nftables.TableFamilyIPv4, l.device()) }

// Names in the underlay: the table, and the set of ports that are cut off from all but the machine's.
var (
	cutTable = &nftables.Table{Name: "skiff", Family: nftables.TableFamilyBridge}
	cutSet   = &nftables.Set{Table: cutTable, Name: "cut", KeyType: nftables.TypeIFName}
)

// ensureCut makes the rules that cut off the ports of a set, which is empty at first. It runs in the underlay.
func ensureCut() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyBridge)
	if err != nil {
		return fmt.Errorf("failed to list nftables tables: %w", err)
	}
	if slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == cutTable.Name }) {
		return nil // the table was made in one transaction
	}
	table, set := *cutTable, *cutSet
	set.Table = c.AddTable(&table)
	if err := c.AddSet(&set, nil); err != nil {
		return err
	}
	chain := c.AddChain(&nftables.Chain{Name: "forward", Table: &table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter})
	for cut, other := range map[expr.MetaKey]expr.MetaKey{expr.MetaKeyIIFNAME: expr.MetaKeyOIFNAME, expr.MetaKeyOIFNAME: expr.MetaKeyIIFNAME} {
		c.AddRule(&nftables.Rule{Table: &table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: cut, Register: 1},
			&expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID},
			&expr.Meta{Key: other, Register: 1},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: interfaceName(hostPort)},
			&expr.Verdict{Kind: expr.VerdictDrop},
		}})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("failed to write nftables table %s of the nodes' network: %w", table.Name, err)
	}
	return nil
}

func interfaceName(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}

// cutPorts returns the ports that are cut off. It runs in the underlay.
func cutPorts() (names []string, err error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	elements, err := c.GetSetElements(cutSet)
	if err != nil {
		return nil, err
	}
	for _, e := range elements {
		names = append(names, strings.TrimRight(string(e.Key), "\x00"))
	}
	return names, nil
}

// setCut cuts a port off, or reconnects it. It runs in the underlay.
func setCut(port string, cut bool) (changed bool, err error) {
	now, err := cutPorts()
	if err != nil || slices.Contains(now, port) == cut {
		return false, err
	}
	c, err := nftables.New()
	if err != nil {
		return false, err
	}
	element := []nftables.SetElement{{Key: interfaceName(port)}}
	if cut {
		err = c.SetAddElements(cutSet, element)
	} else {
		err = c.SetDeleteElements(cutSet, element)
	}
	if err != nil {
		return false, err
	}
	return true, c.Flush()
}
