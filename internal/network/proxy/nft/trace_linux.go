package nft

import (
	"fmt"
	"slices"

	"github.com/google/nftables"

	"skiff/internal/network/nfttable"
)

// A mode that writes elsewhere than to a table of its own leaves an empty table as its trace: it says that the rules are ours to remove. Rules of
// iptables look the same whoever wrote them, and a kube-proxy may be on this machine.

func traceOf(mode string) string { return tableName + "-" + mode }

// Trace leaves the trace of a mode.
func Trace(mode string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.AddTable(&nftables.Table{Name: traceOf(mode), Family: nftables.TableFamilyINet})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables table %s: %w", traceOf(mode), err)
	}
	return nil
}

// Traced reports whether a mode left a trace.
func Traced(mode string) (bool, error) {
	c, err := nftables.New()
	if err != nil {
		return false, err
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	return slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == traceOf(mode) }), err
}

// Untrace removes the trace of a mode, if there is one.
func Untrace(mode string) error { return nfttable.Remove(nftables.TableFamilyINet, traceOf(mode)) }

// Clean removes the table.
func Clean() error { return nfttable.Remove(nftables.TableFamilyINet, tableName) }
