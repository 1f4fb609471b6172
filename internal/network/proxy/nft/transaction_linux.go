package nft

import (
	"fmt"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
)

// transaction collects changes that come into effect together.
type transaction struct {
	m          *Mode
	conn       *nftables.Conn
	pending    map[setName][]nftables.SetElement
	removed    map[setName][]nftables.SetElement
	oldClients map[string][]nftables.SetElement // the clients in the replaced table, by set
	failed     error
}

const (
	// chunk is the number of elements in one message: their list must stay below 64 KiB, and none has more than 120 bytes.
	chunk = 500
	// A transaction is sent in one piece, and each message is acknowledged: the socket's buffers must hold all of that.
	sendBuffer, receiveBuffer = 64 << 20, 8 << 20
	// minClientTimeout is the least remaining timeout of a client that is copied when the table is replaced.
	minClientTimeout = time.Second
)

// begin starts a transaction. The socket stays open for the next one: closing it waits until the kernel has cleaned up after the last one.
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

func (tx *transaction) fail(err error) {
	if tx.failed == nil {
		tx.failed = err
	}
}

func (tx *transaction) chain(name string) {
	tx.conn.AddChain(&nftables.Chain{Name: name, Table: tx.m.table})
	tx.m.chains[name] = struct{}{}
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

// add adds an element, at the latest at commit, but after the chain that it leads to.
func (tx *transaction) add(e element) {
	list := append(tx.pending[e.set], tx.encode(e, true))
	if len(list) == chunk {
		tx.fail(tx.conn.SetAddElements(tx.set(e.set), list))
		list = list[:0]
	}
	tx.pending[e.set] = list
}

// remove removes an element, at the latest at flushRemoved.
func (tx *transaction) remove(e element) {
	list := append(tx.removed[e.set], tx.encode(e, false))
	if len(list) == chunk {
		tx.fail(tx.conn.SetDeleteElements(tx.set(e.set), list))
		list = list[:0]
	}
	tx.removed[e.set] = list
}

// flushRemoved writes the remaining elements of remove.
func (tx *transaction) flushRemoved() {
	for name, list := range tx.removed {
		if len(list) > 0 {
			tx.fail(tx.conn.SetDeleteElements(tx.set(name), list))
		}
	}
	clear(tx.removed)
}

// commit sends the transaction: either all of it comes into effect or nothing.
func (tx *transaction) commit() error {
	tx.flushRemoved()
	for name, list := range tx.pending {
		if len(list) > 0 {
			tx.fail(tx.conn.SetAddElements(tx.set(name), list))
		}
	}
	clear(tx.pending)
	if tx.failed == nil {
		tx.failed = tx.conn.Flush()
	}
	if tx.failed != nil {
		_ = tx.m.Close() // the socket may still hold unread answers
		return fmt.Errorf("failed to write nftables table %s: %w", tableName, tx.failed)
	}
	return nil
}

// difference holds the old and the new elements of all Ports that may have changed.
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

// write removes the elements that are obsolete, calls between, and adds the elements that are new.
func (d *difference) write(tx *transaction, between func()) {
	for name, e := range d.was {
		if now, ok := d.is[name]; !ok || now != e {
			tx.remove(e)
		}
	}
	tx.flushRemoved()
	between()
	for name, e := range d.is {
		if was, ok := d.was[name]; !ok || was != e {
			tx.add(e)
		}
	}
}
