package nft

import (
	"context"
	"fmt"
	"math/bits"
	"slices"

	"github.com/google/nftables"

	"skiff/internal/network/proxy/model"
)

// Mode is the nftables mode of the service proxy.
type Mode struct {
	config model.Config
	conn   *nftables.Conn // nil until the first transaction
	table  *nftables.Table
	sets   [2][roles]*nftables.Set

	// The kernel's state, as of the last successful Sync.
	chains       map[string]struct{}
	empty        map[string]struct{}          // chains without rules, which no element leads to
	affinitySets map[string]uint32            // the sets of Ports with session affinity, with their IDs
	setIDs       uint32                       // the last set ID that was used
	claims       *claims                      // nil if the kernel's state is unknown
	counts       map[setName]map[string]int32 // how many Ports have a shared element
	rules        int                          // the number of rules in the chain "dispatch"
	recreate     bool                         // the next Sync must create the table again: its content is unknown or too large
}

// New returns the mode. It fails where the kernel does not support nftables.
func New(config model.Config) (*Mode, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	if _, err := c.ListTablesOfFamily(nftables.TableFamilyINet); err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	m := &Mode{config: config, table: &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}}
	m.sets = sets(m.table)
	return m, nil
}

// FlowsInKernel implements model.Mode: conntrack decides about established flows.
func (m *Mode) FlowsInKernel() bool { return true }

// Close implements model.Mode: it closes the netlink socket.
func (m *Mode) Close() error {
	conn := m.conn
	m.conn = nil
	if conn == nil {
		return nil
	}
	return conn.CloseLasting()
}

// Sync implements model.Mode.
func (m *Mode) Sync(ctx context.Context, state *model.State, changes model.Changes) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(m.empty) > maxEmptyChains && m.claims != nil && !m.removeEmptyChains() {
		m.recreate = true
	}
	if changes.All || m.claims == nil || m.recreate {
		return m.replace(state)
	}
	return m.change(state, changes.Ports)
}

// removeEmptyChains removes empty chains. They have been empty since the last Sync, so no element leads to them by now.
func (m *Mode) removeEmptyChains() bool {
	tx, err := m.begin()
	if err != nil {
		return false
	}
	for name := range m.empty {
		tx.conn.DelChain(&nftables.Chain{Name: name, Table: m.table})
	}
	if err := tx.commit(); err != nil {
		return false
	}
	for name := range m.empty {
		delete(m.chains, name)
	}
	clear(m.empty)
	return true
}

// replace writes everything, in place of the table's content.
func (m *Mode) replace(state *model.State) error {
	tx, err := m.begin()
	if err != nil {
		return err
	}
	m.claims, m.counts = newClaims(len(state.Ports)), map[setName]map[string]int32{}
	m.chains, m.empty, m.affinitySets = map[string]struct{}{}, map[string]struct{}{}, map[string]uint32{}
	m.setIDs, m.rules = uint32(len(families))*uint32(roles), 0
	current, err := m.find()
	if err != nil {
		m.claims = nil
		return err
	}
	tx.clear(current)
	tx.layout(state)
	ports := make([]*model.Port, 0, len(state.Ports))
	for _, p := range state.Ports {
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b *model.Port) int { return a.Key.Compare(b.Key) })
	for _, p := range ports {
		frontends(p, func(f frontend, _, _ bool) { m.claims.claim(f, p.Key) })
		id := m.id(p)
		tx.writeAffinity(id, nil, p)
		render(p, id, m.claims.owns(p.Key), tx.add)
		shared(p, func(e element) {
			if m.count(e, 1) == 1 {
				tx.add(e)
			}
		})
	}
	if err := tx.commit(); err != nil {
		m.claims = nil // the kernel's state is unknown
		m.recreate = true
		return err
	}
	m.recreate = false
	return nil
}

// change writes the changes of some Ports.
func (m *Mode) change(state *model.State, changes []model.Change) error {
	tx, err := m.begin()
	if err != nil {
		return err
	}
	d := newDifference()

	// Other Ports that share a frontend with a changed Port may gain or lose it.
	others := map[model.Key]*model.Port{}
	changed := make(map[model.Key]struct{}, len(changes))
	for _, c := range changes {
		changed[c.Key] = struct{}{}
	}
	involve := func(p *model.Port) {
		if p == nil {
			return
		}
		frontends(p, func(f frontend, _, _ bool) {
			for _, key := range append([]model.Key{m.claims.owners[f]}, m.claims.waiting[f]...) {
				if _, itself := changed[key]; !itself && state.Ports[key] != nil {
					others[key] = state.Ports[key]
				}
			}
		})
	}
	for _, c := range changes {
		involve(c.Old)
		involve(c.New)
	}

	before := func(p *model.Port) { render(p, m.id(p), m.claims.owns(p.Key), d.before) }
	after := func(p *model.Port) { render(p, m.id(p), m.claims.owns(p.Key), d.after) }
	for _, p := range others {
		before(p)
	}
	for _, c := range changes {
		if c.Old != nil {
			before(c.Old)
			shared(c.Old, func(e element) {
				if m.count(e, -1) == 0 {
					d.before(e)
				}
			})
		}
	}
	for _, c := range changes {
		if c.Old == nil {
			continue
		}
		keep := map[frontend]struct{}{}
		if c.New != nil {
			frontends(c.New, func(f frontend, _, _ bool) { keep[f] = struct{}{} })
		}
		frontends(c.Old, func(f frontend, _, _ bool) {
			if _, kept := keep[f]; !kept {
				m.claims.release(f, c.Key)
			}
		})
	}
	for _, c := range changes {
		if c.New == nil {
			continue
		}
		frontends(c.New, func(f frontend, _, _ bool) { m.claims.claim(f, c.Key) })
		shared(c.New, func(e element) {
			if m.count(e, 1) == 1 {
				d.after(e)
			}
		})
	}
	for _, c := range changes {
		if c.New != nil {
			after(c.New)
		}
	}
	for _, p := range others {
		after(p)
	}
	d.write(tx, func() {
		for _, c := range changes {
			if affinityEndpoints(c.Old) != nil || affinityEndpoints(c.New) != nil {
				tx.writeAffinity(m.claims.id(c.Key), c.Old, c.New)
			}
			if affinityEndpoints(c.New) == nil {
				m.claims.releaseID(c.Key)
			}
		}
	})
	if err := tx.commit(); err != nil {
		m.claims = nil
		return err
	}
	return nil
}

// count adds to the number of Ports that have a shared element, and returns the new number.
func (m *Mode) count(e element, by int32) int32 {
	set := m.counts[e.set]
	if set == nil {
		set = map[string]int32{}
		m.counts[e.set] = set
	}
	n := set[e.key] + by
	if n == 0 {
		delete(set, e.key)
	} else {
		set[e.key] = n
	}
	return n
}

// id returns the number of a Port with session affinity; 0 if it has none.
func (m *Mode) id(p *model.Port) uint32 {
	if p.Affinity == 0 {
		return 0
	}
	return m.claims.id(p.Key)
}

func (m *Mode) index(f model.Family) int {
	if f == model.IPv4 {
		return 0
	}
	return 1
}

// Intact implements model.Mode: it checks that the table exists, with as many chains, sets and dispatch rules as were written.
func (m *Mode) Intact(context.Context) (bool, error) {
	if m.claims == nil {
		return false, nil
	}
	c, err := nftables.New()
	if err != nil {
		return false, err
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(tables, func(t *nftables.Table) bool { return t.Name == tableName })
	parts := uint32(len(m.chains) + len(m.affinitySets) + len(families)*int(roles))
	if i < 0 || tables[i].Use != parts && bits.ReverseBytes32(tables[i].Use) != parts { // the library decodes it in the machine's byte order
		return false, nil
	}
	rules, err := c.GetRules(m.table, &nftables.Chain{Name: "dispatch", Table: m.table})
	if err != nil {
		return false, err
	}
	return len(rules) == m.rules, nil
}
