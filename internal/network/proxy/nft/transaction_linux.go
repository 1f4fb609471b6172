package nft

import (
	"fmt"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
)

// transaction gathers changes that come into effect together.
type transaction struct {
	m       *Mode
	conn    *nftables.Conn
	pending map[setName][]nftables.SetElement
	removed map[setName][]nftables.SetElement
	failed  error
}

const (
	// chunk is how many elements go into one message: their list must stay below 64 KiB, and none has more than 120 bytes.
	chunk = 500
	// A transaction is sent in one piece, and an acknowledgement comes for each message.
	sendBuffer, receiveBuffer = 64 << 20, 8 << 20
)

// begin starts a transaction on the socket that there is. It stays open: closing it has to wait until the kernel has tidied up after the last one.
func (m *Mode) begin() (*transaction, error) {
	if m.conn == nil {
		conn, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
			if err := c.SetWriteBuffer(sendBuffer); err != nil {
				return err
			}
			return c.SetReadBuffer(receiveBuffer)
		}))
		if err != nil {
			return nil, fmt.Errorf("nftables: %w", err)
		}
		m.conn = conn
	}
	return &transaction{m: m, conn: m.conn, pending: map[setName][]nftables.SetElement{}, removed: map[setName][]nftables.SetElement{}}, nil
}

func (tx *transaction) try(err error) {
	if tx.failed == nil {
		tx.failed = err
	}
}

func (tx *transaction) chain(name string) {
	tx.conn.AddChain(&nftables.Chain{Name: name, Table: tx.m.table})
	tx.m.chains[name] = struct{}{}
	if name == "dispatch" {
		tx.m.rules = 0
	}
}

func (tx *transaction) rule(chain string, parts ...[]expr.Any) {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	tx.conn.AddRule(&nftables.Rule{Table: tx.m.table, Chain: &nftables.Chain{Name: chain, Table: tx.m.table}, Exprs: all})
	if chain == "dispatch" {
		tx.m.rules++
	}
}

func (tx *transaction) set(name setName) *nftables.Set {
	return tx.m.sets[tx.m.index(name.family)][name.role]
}

// add adds an element, sooner or later, but after the chain that it leads to.
func (tx *transaction) add(e element) {
	list := append(tx.pending[e.set], tx.encode(e, true))
	if len(list) == chunk {
		tx.try(tx.conn.SetAddElements(tx.set(e.set), list))
		list = list[:0]
	}
	tx.pending[e.set] = list
}

// remove removes an element, before any is added.
func (tx *transaction) remove(e element) {
	list := append(tx.removed[e.set], tx.encode(e, false))
	if len(list) == chunk {
		tx.try(tx.conn.SetDeleteElements(tx.set(e.set), list))
		list = list[:0]
	}
	tx.removed[e.set] = list
}

// flushRemoved sends what is to be removed.
func (tx *transaction) flushRemoved() {
	for name, list := range tx.removed {
		if len(list) > 0 {
			tx.try(tx.conn.SetDeleteElements(tx.set(name), list))
		}
	}
	clear(tx.removed)
}

// commit has all of it come into effect, or nothing.
func (tx *transaction) commit() error {
	tx.flushRemoved()
	for name, list := range tx.pending {
		if len(list) > 0 {
			tx.try(tx.conn.SetAddElements(tx.set(name), list))
		}
	}
	clear(tx.pending)
	if tx.failed == nil {
		tx.failed = tx.conn.Flush()
	}
	if tx.failed != nil {
		_ = tx.m.Close() // answers may still be waiting in the socket
		return fmt.Errorf("nftables table %s: %w", tableName, tx.failed)
	}
	return nil
}

// difference is what elements there were and what elements there are to be, of those that may have changed.
type difference struct{ was, is map[elementName]element }

type elementName struct {
	set      setName
	key, end string
}

func newDifference() *difference {
	return &difference{map[elementName]element{}, map[elementName]element{}}
}

func (d *difference) before(e element) { d.was[elementName{e.set, e.key, e.end}] = e }
func (d *difference) after(e element)  { d.is[elementName{e.set, e.key, e.end}] = e }

func (d *difference) write(tx *transaction) {
	for name, e := range d.was {
		if now, ok := d.is[name]; !ok || now != e {
			tx.remove(e)
		}
	}
	tx.flushRemoved()
	for name, e := range d.is {
		if was, ok := d.was[name]; !ok || was != e {
			tx.add(e)
		}
	}
}

// memory is a client and its endpoint, in each family.
type memory [2][]nftables.SetElement

// remembered are the clients that have an endpoint of their own, from the table that is about to be replaced.
func (m *Mode) remembered() (out memory) {
	c, err := nftables.New()
	if err != nil {
		return out
	}
	for i := range families {
		if list, err := c.GetSetElements(m.sets[i][affinity]); err == nil { // if there is no such table there is nothing to remember
			out[i] = list
		}
	}
	return out
}

// restore puts clients into the new table. Those whose Services or endpoints are gone do no harm: see stay.
func (tx *transaction) restore(all memory) {
	for i, f := range families {
		for _, e := range all[i] {
			if _, ok := tx.m.claims.taken[poolOf(e.Key)&^1]; !ok || e.Expires < time.Second || len(e.Val) == 0 {
				continue
			}
			name := setName{affinity, f.is}
			tx.pending[name] = append(tx.pending[name], nftables.SetElement{Key: e.Key, Val: e.Val, Timeout: e.Expires})
			if len(tx.pending[name]) == chunk {
				tx.try(tx.conn.SetAddElements(tx.set(name), tx.pending[name]))
				tx.pending[name] = nil
			}
		}
	}
}
