// Package nfttable replaces and removes tables of nftables: what skiff has there is in tables of its own, so a table is the smallest thing to clean up.
package nfttable

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
)

// Anew begins a table without what it held: the transaction replaces it as a whole.
func Anew(c *nftables.Conn, family nftables.TableFamily, name string) *nftables.Table {
	t := &nftables.Table{Name: name, Family: family}
	c.AddTable(t) // deleting one that is not there would fail
	c.DelTable(t)
	return c.AddTable(t)
}

// Remove removes tables with all that is in them, those of them that there are.
func Remove(family nftables.TableFamily, names ...string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := c.ListTablesOfFamily(family)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if slices.Contains(names, t.Name) {
			c.DelTable(t)
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("removing nftables table %s: %w", strings.Join(names, ", "), err)
	}
	return nil
}
