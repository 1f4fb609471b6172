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

// transaction gathers what is to be written.
type transaction struct {
	written [tables][]chain
	removed [tables][]string
	inserts [tables][]jump
	names   map[chainName]struct{}
}

// put writes a chain, in place of what it may have.
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

// remove removes a chain that there is.
func (tx *transaction) remove(t table, name string) { tx.removed[t] = append(tx.removed[t], name) }

// insert puts a jump at the beginning of its chain.
func (tx *transaction) insert(j jump) { tx.inserts[j.table] = append(tx.inserts[j.table], j) }

// is reports whether a rule, as the programs list it, is this jump.
func (j jump) is(rule string) bool {
	to, _ := target(rule)
	return to == j.to && strings.HasPrefix(rule, "-A "+j.from+" ")
}

// piece is how many chains are written at a time, if they have to be written in pieces: the time of the program grows with the square of it, and for
// each piece the kernel looks at the whole table once more.
const piece = 1000

// texts are what to give to iptables-restore, one after the other; none if there is nothing to do. It is one if no more than limit chains are
// written and removed. Otherwise they are in such an order that each leads to chains that are there already, and what nobody needs any more goes
// last: at every moment a Service is served by what it had or by what it is to have.
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
			limit := piece
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

// rank orders chains by what leads to what: those that lead nowhere come first.
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

// section is what comes into effect in one piece. Chains are named before rules that may lead to them, and removed after all rules that did.
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
