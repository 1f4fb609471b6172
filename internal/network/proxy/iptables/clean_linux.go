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

// Clean removes our chains and what leads to them, of both variants of iptables. Where there is no iptables, there is nothing of it.
func Clean() error { return clean(kube) }

// CleanRedirect removes what modes of NewRedirect wrote.
func CleanRedirect() error { return clean(skiff) }

func clean(n scheme) error {
	var failed error
	for _, f := range []model.Family{model.IPv4, model.IPv6} {
		if there, err := mayBeThere(f, n); err != nil || !there {
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

// mayBeThere asks the kernel whether there can be anything of ours, so that where there is none no program has to run. What is in tables of the legacy
// variant it does not tell without one.
func mayBeThere(f model.Family, n scheme) (bool, error) {
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
		return false, fmt.Errorf("looking for chains of iptables: %w", err)
	}
	return slices.ContainsFunc(chains, func(c *nftables.Chain) bool {
		return n.owned(c.Name) || c.Table.Name == nat.String() && n.fixed(nat, c.Name) || c.Table.Name == filter.String() && n.fixed(filter, c.Name)
	}), nil
}

func nftablesFamily(f model.Family) nftables.TableFamily {
	if f == model.IPv6 {
		return nftables.TableFamilyIPv6
	}
	return nftables.TableFamilyIPv4
}

// variants are the programs of a family: which one it is that rules were written with may have changed since.
func variants(f model.Family) []program {
	var out []program
	seen := map[string]struct{}{}
	for _, ending := range endings {
		p, err := lookup(f, ending)
		if err != nil {
			continue
		}
		is, err := filepath.EvalSymlinks(p.save)
		if err != nil {
			is = p.save
		}
		if _, twice := seen[is]; !twice {
			seen[is] = struct{}{}
			out = append(out, p)
		}
	}
	return out
}

// clean removes what one program lists of ours, and returns in which tables there was something.
func (p program) clean(ctx context.Context, n scheme) ([]table, error) {
	if p.check(ctx) != nil {
		return nil, nil // New did not take it either
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
			continue // nothing can lead to a chain that is not there
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

// removeEmpty removes tables that iptables made in nftables when we needed them, if nothing is in them but the chains they come with, with no rules:
// for packets they are as good as not there, and iptables makes them again when somebody needs them.
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
	// Otherwise there are sets and the like. The library gives the bytes of this number the wrong way round, which a later version may not.
	return t.Use == count || bits.ReverseBytes32(t.Use) == count, nil
}
