package iptables

import (
	"bytes"
	"strings"
)

type chainName struct {
	table table
	name  string
}

// transaction gathers what is to be written. Chains are named before rules that may lead to them, and removed after all rules that did.
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

// text is what to give to iptables-restore; nothing if there is nothing to do.
func (tx *transaction) text() []byte {
	var b bytes.Buffer
	for t := range tables {
		if len(tx.written[t])+len(tx.removed[t])+len(tx.inserts[t]) == 0 {
			continue
		}
		b.WriteString("*" + t.String() + "\n")
		for _, c := range tx.written[t] {
			b.WriteString(":" + c.name + " - [0:0]\n")
		}
		for _, name := range tx.removed[t] {
			b.WriteString(":" + name + " - [0:0]\n")
		}
		for _, c := range tx.written[t] {
			for _, rule := range c.rules {
				b.WriteString("-A ")
				b.WriteString(c.name)
				b.WriteByte(' ')
				b.WriteString(rule)
				b.WriteByte('\n')
			}
		}
		for _, j := range tx.inserts[t] {
			b.WriteString("-I " + j.from + " " + j.filter + "-j " + j.to + "\n")
		}
		for _, name := range tx.removed[t] {
			b.WriteString("-X " + name + "\n")
		}
		b.WriteString("COMMIT\n")
	}
	return b.Bytes()
}
