package nft

import (
	"strings"

	"github.com/google/nftables"
)

// layoutChain is an empty chain that says how the table is laid out. Another layout has another name.
const layoutChain = "layout-1"

// found is what there is of our table.
type found struct {
	chains map[string]struct{}
	sets   map[string]*nftables.Set
}

// same reports whether the table is laid out as we would.
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
	if err != nil { // somebody put something into it that cannot be read: it is as if it were laid out otherwise
		delete(f.chains, layoutChain)
		return f, nil
	}
	for _, s := range sets {
		s.Table = m.table
		f.sets[s.Name] = s
	}
	return f, nil
}

// clear takes everything out of the table, or makes it. A table with our layout is kept, with its chains: while one table comes and another goes
// there is an instant in which a packet has passed the hook of the one too early and comes to that of the other too late.
func (tx *transaction) clear(there *found) {
	tx.remembered = remembered(there)
	if !there.same() || tx.m.afresh {
		tx.conn.AddTable(tx.m.table) // deleting one that is not there would fail
		tx.conn.DelTable(tx.m.table)
		tx.conn.AddTable(tx.m.table)
		for i := range families {
			for _, s := range tx.m.sets[i] {
				tx.try(tx.conn.AddSet(s, nil))
			}
		}
		tx.refill(layoutChain)
		return
	}
	for name := range there.chains {
		tx.m.chains[name] = struct{}{}
		if name != layoutChain {
			tx.m.empty[name] = struct{}{}
			tx.conn.FlushChain(&nftables.Chain{Name: name, Table: tx.m.table})
		}
	}
	for i := range families {
		for _, s := range tx.m.sets[i] {
			if there.sets[s.Name] != nil {
				tx.conn.FlushSet(s)
			} else {
				tx.try(tx.conn.AddSet(s, nil))
			}
			delete(there.sets, s.Name)
		}
	}
	for _, s := range there.sets {
		tx.conn.DelSet(s)
	}
}

// remembered are the clients of endpoints, by set, that the table has.
func remembered(there *found) map[string][]nftables.SetElement {
	c, err := nftables.New()
	if err != nil {
		return nil
	}
	out := map[string][]nftables.SetElement{}
	for name, s := range there.sets {
		if !strings.HasPrefix(name, "clients-") {
			continue
		}
		if list, err := c.GetSetElements(s); err == nil && len(list) > 0 { // what cannot be read is forgotten
			out[name] = list
		}
	}
	return out
}
