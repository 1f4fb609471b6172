package nft

import (
	"fmt"
	"slices"

	"github.com/google/nftables"

	"skiff/internal/network/nfttable"
)

// A mode that does not write to a table of its own is marked by an empty nftables table, which says that its rules are skiff's to remove. iptables
// rules of a kube-proxy on this machine would look the same.

func markTable(mode string) string { return tableName + "-" + mode }

// MarkMode adds the mark of a mode.
func MarkMode(mode string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.AddTable(&nftables.Table{Name: markTable(mode), Family: nftables.TableFamilyINet})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("failed to add nftables table %s: %w", markTable(mode), err)
	}
	return nil
}

// ModeMarked reports whether a mode is marked.
func ModeMarked(mode string) (bool, error) {
	c, err := nftables.New()
	if err != nil {
		return false, err
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	return slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == markTable(mode) }), err
}

// UnmarkMode removes the mark of a mode, if there is one.
func UnmarkMode(mode string) error { return nfttable.Remove(nftables.TableFamilyINet, markTable(mode)) }

// Clean removes the proxy's table.
func Clean() error { return nfttable.Remove(nftables.TableFamilyINet, tableName) }
