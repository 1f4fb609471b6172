package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/nftables"

	"skiff/internal/network/proxy/model"
)

// Clean removes the mode's chains and the jumps to them, with both variants of iptables. It does nothing where iptables is not installed.
func Clean() error { return clean(kube) }

// CleanRedirect removes the chains and jumps of modes of NewRedirect.
func CleanRedirect() error { return clean(skiff) }

func clean(n scheme) error {
	var failed error
	for _, f := range []model.Family{model.IPv4, model.IPv6} {
		if possible, err := mayHaveChains(f, n); err != nil || !possible {
			failed = errors.Join(failed, err)
			continue
		}
		left := map[string]struct{}{}
		for _, p := range variants(f) {
			cleaned, err := p.clean(context.Background(), n)
			failed = errors.Join(failed, err)
			for _, t := range cleaned {
				left[t.String()] = struct{}{}
			}
		}
		if len(left) > 0 {
			failed = errors.Join(failed, removeEmpty(f, left))
		}
	}
	return failed
}

// mayHaveChains asks the kernel whether the mode's chains can exist, so that usually no program has to run. It reports true if there are tables of
// the legacy variant, whose content only the program can list.
func mayHaveChains(f model.Family, n scheme) (bool, error) {
	legacy := "/proc/thread-self/net/ip_tables_names"
	if f == model.IPv6 {
		legacy = "/proc/thread-self/net/ip6_tables_names"
	}
	if names, err := os.ReadFile(legacy); err == nil && len(names) > 0 {
		return true, nil
	}
	c, err := nftables.New()
	if err != nil {
		return false, err
	}
	chains, err := c.ListChainsOfTableFamily(nftablesFamily(f))
	if err != nil {
		return false, fmt.Errorf("failed to list the chains of iptables: %w", err)
	}
	return slices.ContainsFunc(chains, func(c *nftables.Chain) bool {
		return n.isPortChain(c.Name) || c.Table.Name == nat.String() && n.isFixedChain(nat, c.Name) || c.Table.Name == filter.String() && n.isFixedChain(filter, c.Name)
	}), nil
}

func nftablesFamily(f model.Family) nftables.TableFamily {
	if f == model.IPv6 {
		return nftables.TableFamilyIPv6
	}
	return nftables.TableFamilyIPv4
}

// variants returns the installed programs of a family: rules may have been written with another one than is used now.
func variants(f model.Family) []program {
	var out []program
	seen := map[string]struct{}{}
	for _, suffix := range variantSuffixes {
		p, err := lookup(f, suffix)
		if err != nil {
			continue
		}
		path, err := filepath.EvalSymlinks(p.save)
		if err != nil {
			path = p.save
		}
		if _, known := seen[path]; !known {
			seen[path] = struct{}{}
			out = append(out, p)
		}
	}
	return out
}

// clean removes the mode's chains and jumps that one program lists, and returns the tables that had some.
func (p program) clean(ctx context.Context, n scheme) ([]table, error) {
	if p.check(ctx) != nil {
		return nil, nil // New does not use it either
	}
	there, err := p.find(ctx, n)
	if err != nil {
		return nil, err
	}
	var cleaned []table
	var jumps bytes.Buffer
	var chains transaction
	for t := range tables {
		if len(there.chains[t]) == 0 {
			continue // there are no jumps to chains that do not exist
		}
		cleaned = append(cleaned, t)
		fmt.Fprintf(&jumps, "*%s\n", t)
		for _, rule := range there.jumps[t] {
			fmt.Fprintf(&jumps, "-D%s\n", strings.TrimPrefix(rule, "-A"))
		}
		jumps.WriteString("COMMIT\n")
		for name := range there.chains[t] {
			chains.remove(t, name)
		}
	}
	if len(cleaned) == 0 {
		return nil, nil
	}
	if err := p.write(ctx, jumps.Bytes()); err != nil {
		return nil, err
	}
	return cleaned, p.commit(ctx, &chains)
}

// removeEmpty removes the nftables tables that iptables created for the mode, if they have nothing but built-in chains without rules: they have
// no effect on packets, and iptables creates them again when they are needed.
func removeEmpty(f model.Family, names map[string]struct{}) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	family := nftablesFamily(f)
	all, err := c.ListTablesOfFamily(family)
	if err != nil {
		return err
	}
	chains, err := c.ListChainsOfTableFamily(family)
	if err != nil {
		return err
	}
	for _, t := range all {
		if _, ours := names[t.Name]; !ours {
			continue
		}
		empty, err := isEmpty(c, t, chains)
		if err != nil {
			return err
		}
		if empty {
			c.DelTable(t)
		}
	}
	return c.Flush()
}

var builtIn = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

func isEmpty(c *nftables.Conn, t *nftables.Table, chains []*nftables.Chain) (bool, error) {
	count := uint32(0)
	for _, chain := range chains {
		if chain.Table.Name != t.Name {
			continue
		}
		count++
		if !slices.Contains(builtIn, chain.Name) || chain.Hooknum == nil || chain.Policy == nil || *chain.Policy != nftables.ChainPolicyAccept {
			return false, nil
		}
		rules, err := c.GetRules(t, chain)
		if err != nil || len(rules) > 0 {
			return false, err
		}
	}
	// If the use count is higher there are sets and the like. The library decodes this number in the wrong byte order, which a later version may not.
	return t.Use == count || bits.ReverseBytes32(t.Use) == count, nil
}
