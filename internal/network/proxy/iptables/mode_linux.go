package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"skiff/internal/network/proxy/model"
)

// Mode is the iptables mode of the service proxy.
type Mode struct {
	renderer renderer
	programs []program // one per family
	log      *slog.Logger

	synced    bool
	endpoints int // the number of endpoints of all Ports, as of the last Sync
}

// maxCommentedEndpoints is the number of endpoints up to which their rules have comments.
const maxCommentedEndpoints = 1000

// New returns the mode. It fails if iptables is not installed or if the kernel lacks a module that is needed.
func New(config model.Config) (*Mode, error) { return newMode(config, kube) }

// NewRedirect returns a mode for package userspace: its endpoints are listeners on this node that can be reached only through their Services. Its
// chains have names that begin with SKIFF.
func NewRedirect(config model.Config) (*Mode, error) { return newMode(config, skiff) }

func newMode(config model.Config, n scheme) (*Mode, error) {
	log := config.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m := &Mode{renderer: renderer{scheme: n, config: config, recent: true}, log: log}
	for _, f := range []model.Family{model.IPv4, model.IPv6} {
		p, err := find(f)
		if err != nil {
			if f == model.IPv6 && errors.Is(err, exec.ErrNotFound) {
				log.Warn("services are not served over IPv6: ip6tables is not installed", "error", err)
				continue
			}
			return nil, fmt.Errorf("the service proxy mode iptables needs iptables: install it (in Debian the package iptables) or choose the mode nftables: %w", err)
		}
		if err := p.check(context.Background()); err != nil {
			return nil, err
		}
		hasRecent, err := p.probe(context.Background())
		if err != nil {
			if f == model.IPv6 && !hasIPv6() {
				continue
			}
			return nil, err
		}
		if !hasRecent {
			log.Warn("session affinity of services has no effect: the kernel lacks xt_recent", "program", p.restore)
			m.renderer.recent = false
		}
		m.programs = append(m.programs, p)
	}
	return m, nil
}

func hasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return err == nil
}

// FlowsInKernel implements model.Mode: conntrack decides about established flows.
func (m *Mode) FlowsInKernel() bool { return true }

// Close implements model.Mode. There is nothing to stop.
func (m *Mode) Close() error { return nil }

// Sync implements model.Mode.
func (m *Mode) Sync(ctx context.Context, state *model.State, changes model.Changes) error {
	all := changes.All || !m.synced
	m.count(state, changes.Ports, all)
	m.synced = false // until all programs have succeeded
	for _, p := range m.programs {
		var tx *transaction
		if all {
			there, err := p.find(ctx, m.renderer.scheme)
			if err != nil {
				return err
			}
			tx = m.everything(p.family, state, there)
		} else {
			tx = m.changed(p.family, state, changes.Ports)
		}
		if err := p.commit(ctx, tx); err != nil {
			return err
		}
	}
	m.synced = true
	return nil
}

// count updates the number of endpoints, and whether rules have comments.
func (m *Mode) count(state *model.State, changes []model.Change, all bool) {
	size := func(p *model.Port) int {
		if p == nil {
			return 0
		}
		return len(p.Cluster) + len(p.Local)
	}
	if all {
		m.endpoints = 0
		for _, p := range state.Ports {
			m.endpoints += size(p)
		}
	} else {
		for _, c := range changes {
			m.endpoints += size(c.New) - size(c.Old)
		}
	}
	m.renderer.terse = m.endpoints > maxCommentedEndpoints
}

// everything returns the transaction that writes all chains, whatever the current ones are.
func (m *Mode) everything(f model.Family, state *model.State, there *found) *transaction {
	tx := &transaction{}
	for _, c := range m.renderer.base(f, strict()) {
		tx.put(c)
	}
	ports := sorted(f, state)
	m.fill(tx, f, state, ports, func(shared) bool { return true })
	for _, p := range ports {
		for _, c := range m.renderer.chains(p) {
			tx.put(c)
		}
	}
	for t := range tables {
		for _, name := range slices.Sorted(maps.Keys(there.chains[t])) {
			if m.renderer.isPortChain(name) && !tx.has(t, name) {
				tx.remove(t, name)
			}
		}
	}
	// Jumps are inserted at the beginning of their chains, so the last one is inserted first.
	for _, j := range slices.Backward(m.renderer.jumps()) {
		if !slices.ContainsFunc(there.jumps[j.table], func(rule string) bool { return j.is(rule) }) {
			tx.insert(j)
		}
	}
	return tx
}

// changed returns the transaction that writes the changes of some Ports; it may be empty.
func (m *Mode) changed(f model.Family, state *model.State, changes []model.Change) *transaction {
	tx := &transaction{}
	var dirty [sharedChains]bool
	for _, c := range changes {
		if c.Key.Family != f {
			continue
		}
		before, after := map[chainName][]string{}, []chain(nil)
		var was, is [sharedChains][]string
		if c.Old != nil {
			for _, c := range m.renderer.chains(c.Old) {
				before[chainName{c.table, c.name}] = c.rules
			}
			m.renderer.rules(c.Old, func(s shared, rule string) { was[s] = append(was[s], rule) })
		}
		if c.New != nil {
			after = m.renderer.chains(c.New)
			m.renderer.rules(c.New, func(s shared, rule string) { is[s] = append(is[s], rule) })
		}
		for _, c := range after {
			rules, had := before[chainName{c.table, c.name}]
			if !had || !slices.Equal(rules, c.rules) {
				tx.put(c)
			}
			delete(before, chainName{c.table, c.name})
		}
		for obsolete := range before {
			tx.remove(obsolete.table, obsolete.name)
		}
		for s := range sharedChains {
			dirty[s] = dirty[s] || !slices.Equal(was[s], is[s])
		}
	}
	if slices.Contains(dirty[:], true) {
		m.fill(tx, f, state, sorted(f, state), func(s shared) bool { return dirty[s] })
	}
	return tx
}

// fill writes those of the shared chains that are wanted.
func (m *Mode) fill(tx *transaction, f model.Family, state *model.State, ports []*model.Port, wanted func(shared) bool) {
	var rules [sharedChains][]string
	for _, p := range ports {
		m.renderer.rules(p, func(s shared, rule string) { rules[s] = append(rules[s], rule) })
	}
	for s := range sharedChains {
		if wanted(s) {
			tx.put(chain{table: s.table(), name: m.renderer.shared(s), rules: append(rules[s], m.renderer.lastRules(s, f, state)...)})
		}
	}
}

// sorted returns the Ports of a family by key. Of two Ports with the same address the first one gets it.
func sorted(f model.Family, state *model.State) []*model.Port {
	out := make([]*model.Port, 0, len(state.Ports))
	for _, p := range state.Ports {
		if p.Key.Family == f {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *model.Port) int { return a.Key.Compare(b.Key) })
	return out
}

// strict reports whether packets in conntrack state INVALID are dropped: unless the kernel is configured to be liberal about them.
func strict() bool {
	b, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal")
	return err != nil || string(bytes.TrimSpace(b)) == "0"
}

// Intact implements model.Mode: it checks that the jumps to the mode's chains exist, and the rules that do not depend on Services.
func (m *Mode) Intact(ctx context.Context) (bool, error) {
	if !m.synced {
		return false, nil
	}
	for _, p := range m.programs {
		var questions [tables]strings.Builder
		for _, j := range m.renderer.jumps() {
			fmt.Fprintf(&questions[j.table], "-C %s %s-j %s\n", j.from, j.filter, j.to)
		}
		for _, c := range m.renderer.base(p.family, strict()) {
			for _, rule := range c.rules {
				fmt.Fprintf(&questions[c.table], "-C %s %s\n", c.name, rule)
			}
		}
		for s := range sharedChains {
			for _, rule := range m.renderer.lastRules(s, p.family, &model.State{}) {
				fmt.Fprintf(&questions[s.table()], "-C %s %s\n", m.renderer.shared(s), rule)
			}
		}
		var text bytes.Buffer
		for t := range tables {
			fmt.Fprintf(&text, "*%s\n%sCOMMIT\n", t, questions[t].String())
		}
		var failed *failure
		switch err := p.write(ctx, text.Bytes()); {
		case err == nil:
		case errors.As(err, &failed) && ctx.Err() == nil && failed.code > 0 && failed.code != exitBusy:
			m.log.Info("service rules are missing", "error", err)
			return false, nil
		default:
			return false, err
		}
	}
	return true, nil
}

// exitBusy is the exit code of the programs when they could not get the lock.
const exitBusy = 4
