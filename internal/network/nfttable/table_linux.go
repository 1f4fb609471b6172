package nfttable

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
)

// Anew adds an empty table to the transaction of c, in place of the table of that name if there is one.
func Anew(c *nftables.Conn, family nftables.TableFamily, name string) *nftables.Table {
	t := &nftables.Table{Name: name, Family: family}
	c.AddTable(t) // deleting a table that does not exist would fail
	c.DelTable(t)
	return c.AddTable(t)
}

// Remove removes those of the tables that exist, with all that is in them.
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
		return fmt.Errorf("failed to remove nftables table %s: %w", strings.Join(names, ", "), err)
	}
	return nil
}
