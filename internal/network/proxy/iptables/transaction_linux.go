package iptables

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

type chainName struct {
	table table
	name  string
}

// transaction collects the chains and jumps to write and remove.
type transaction struct {
	written [tables][]chain
	removed [tables][]string
	inserts [tables][]jump
	names   map[chainName]struct{}
}

// put writes a chain, in place of its rules if it exists.
func (tx *transaction) put(c chain) {
	if tx.names == nil {
		tx.names = map[chainName]struct{}{}
	}
	tx.names[chainName{c.table, c.name}] = struct{}{}
	tx.written[c.table] = append(tx.written[c.table], c)
}

func (tx *transaction) has(t table, name string) bool {
	_, ok := tx.names[chainName{t, name}]
	return ok
}

// remove removes a chain, which must exist.
func (tx *transaction) remove(t table, name string) { tx.removed[t] = append(tx.removed[t], name) }

// insert inserts a jump at the beginning of its chain.
func (tx *transaction) insert(j jump) { tx.inserts[j.table] = append(tx.inserts[j.table], j) }

// is reports whether a rule, as the programs list it, is this jump.
func (j jump) is(rule string) bool {
	to, _ := target(rule)
	return to == j.to && strings.HasPrefix(rule, "-A "+j.from+" ")
}

// pieceSize is the number of chains in one piece of a transaction that is too large for one run: the program's time grows with the square of it,
// and for each piece the kernel reads the whole table again.
const pieceSize = 1000

// texts returns the inputs of iptables-restore, to be given one after the other; none if there is nothing to do. It is one if at most limit
// chains are written and removed. Otherwise chains are ordered so that each jumps only to chains that exist already, and obsolete chains are
// removed last: at every moment a Service is served by its old rules or by its new ones.
func (tx *transaction) texts(limit int) [][]byte {
	var out [][]byte
	var b bytes.Buffer
	cut := func() {
		out = append(out, bytes.Clone(b.Bytes()))
		b.Reset()
	}
	for t := range tables {
		written, removed := tx.written[t], tx.removed[t]
		if len(written)+len(removed) > limit {
			limit := pieceSize
			slices.SortStableFunc(written, func(a, b chain) int { return cmp.Compare(rank(a.name), rank(b.name)) })
			slices.SortStableFunc(removed, func(a, b string) int { return -cmp.Compare(rank(a), rank(b)) })
			for len(written) > limit {
				section(&b, t, written[:limit], nil, nil)
				cut()
				written = written[limit:]
			}
			if len(written)+len(removed) > limit {
				section(&b, t, written, tx.inserts[t], nil)
				cut()
				written, tx.inserts[t] = nil, nil
			}
			for len(removed) > limit {
				section(&b, t, nil, nil, removed[:limit])
				cut()
				removed = removed[limit:]
			}
		}
		section(&b, t, written, tx.inserts[t], removed)
	}
	if b.Len() > 0 {
		cut()
	}
	return out
}

// rank orders chains by the jumps between them: those without jumps come first.
func rank(name string) int {
	_, rest, _ := strings.Cut(name, "-")
	for i, kinds := range [][]string{{"MARK-MASQ"}, {"MARK-", "POSTROUTING", kindEndpoint}, {kindService, kindLocal}, {kindExternal}, {kindFirewall}} {
		if slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasPrefix(rest, kind) }) {
			return i
		}
	}
	if strings.HasPrefix(rest, "NODEPORTS") {
		return 5
	}
	return 6
}

// section writes the part of a table that comes into effect at once. Chains are declared before the rules that jump to them, and removed after all
// rules that did.
func section(b *bytes.Buffer, t table, written []chain, inserts []jump, removed []string) {
	if len(written)+len(removed)+len(inserts) == 0 {
		return
	}
	line := func(words ...string) {
		for i, w := range words {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(w)
		}
		b.WriteByte('\n')
	}
	line("*" + t.String())
	for _, c := range written {
		line(":"+c.name, "- [0:0]")
	}
	for _, name := range removed {
		line(":"+name, "- [0:0]")
	}
	for _, c := range written {
		for _, rule := range c.rules {
			line("-A", c.name, rule)
		}
	}
	for _, j := range inserts {
		line("-I", j.from, j.filter+"-j", j.to)
	}
	for _, name := range removed {
		line("-X", name)
	}
	line("COMMIT")
}
