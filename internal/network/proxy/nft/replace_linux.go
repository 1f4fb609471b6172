package nft

import (
	"strings"

	"github.com/google/nftables"
)

// layoutChain is an empty chain whose name is the version of the table's layout.
const layoutChain = "layout-1"

// found holds the chains and sets of the existing table.
type found struct {
	chains map[string]struct{}
	sets   map[string]*nftables.Set
}

// same reports whether the existing table has the current layout.
func (f *found) same() bool {
	_, ok := f.chains[layoutChain]
	return ok
}

func (m *Mode) find() (*found, error) {
	f := &found{map[string]struct{}{}, map[string]*nftables.Set{}}
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, err
	}
	for _, chain := range chains {
		if chain.Table.Name == tableName {
			f.chains[chain.Name] = struct{}{}
		}
	}
	if len(f.chains) == 0 {
		return f, nil
	}
	sets, err := c.GetSets(m.table)
	if err != nil { // somebody added a set that cannot be decoded: handle the table as one with another layout
		delete(f.chains, layoutChain)
		return f, nil
	}
	for _, s := range sets {
		s.Table = m.table
		f.sets[s.Name] = s
	}
	return f, nil
}

// clear empties the table, or creates it. A table with the current layout is kept, with its chains: while one table replaces another, there is
// an instant in which a packet passes the hook of neither.
func (tx *transaction) clear(current *found) {
	tx.oldClients = readClients(current)
	if !current.same() || tx.m.recreate {
		tx.conn.AddTable(tx.m.table) // deleting a table that does not exist would fail
		tx.conn.DelTable(tx.m.table)
		tx.conn.AddTable(tx.m.table)
		for i := range families {
			for _, s := range tx.m.sets[i] {
				tx.fail(tx.conn.AddSet(s, nil))
			}
		}
		tx.ensureChain(layoutChain)
		return
	}
	for name := range current.chains {
		tx.m.chains[name] = struct{}{}
		if name != layoutChain {
			tx.m.empty[name] = struct{}{}
			tx.conn.FlushChain(&nftables.Chain{Name: name, Table: tx.m.table})
		}
	}
	for i := range families {
		for _, s := range tx.m.sets[i] {
			if current.sets[s.Name] != nil {
				tx.conn.FlushSet(s)
			} else {
				tx.fail(tx.conn.AddSet(s, nil))
			}
			delete(current.sets, s.Name)
		}
	}
	for _, s := range current.sets {
		tx.conn.DelSet(s)
	}
}

// readClients returns the recorded clients of endpoints in the existing table, by set.
func readClients(current *found) map[string][]nftables.SetElement {
	c, err := nftables.New()
	if err != nil {
		return nil
	}
	out := map[string][]nftables.SetElement{}
	for name, s := range current.sets {
		if !strings.HasPrefix(name, "clients-") {
			continue
		}
		if list, err := c.GetSetElements(s); err == nil && len(list) > 0 { // clients that cannot be read lose their affinity
			out[name] = list
		}
	}
	return out
}
