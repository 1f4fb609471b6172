package iptables

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skiff/internal/network/proxy/model"
)

// probeLimit is how long it may take to find out what the kernel has.
const probeLimit = 30 * time.Second

// need is something of the kernel's, with a rule that uses it.
type need struct {
	name  string
	table table
	rule  string
}

var needs = []need{
	{"xt_comment", nat, `-m comment --comment "x" -j RETURN`},
	{"xt_statistic", nat, "-m statistic --mode random --probability 0.5 -j RETURN"},
	{"xt_addrtype", nat, "-m addrtype --dst-type LOCAL -j RETURN"},
	{"xt_tcpudp", nat, "-p udp -m udp --dport 1 -j RETURN"},
	{"xt_mark", nat, "-m mark --mark 1/1 -j MARK --xor-mark 1"},
	{"xt_conntrack", filter, "-m conntrack --ctstate NEW -j RETURN"},
	{"xt_MASQUERADE", nat, "-j MASQUERADE --random-fully"},
	{"REJECT", filter, "-j REJECT"},
}

const recentRule = "-m recent --name SKIFF-PROBE --rcheck --seconds 1 --reap -j RETURN"

// probe tries out what we need in a network namespace of its own, so that nothing is changed in ours. It reports whether there is affinity.
func (p program) probe(ctx context.Context) (recent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and the thread ends with the goroutine: nobody else may run in it
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("a network namespace to try out what the kernel has: %w", err)
			return
		}
		recent, err = p.probeHere(ctx)
	}()
	<-done
	return recent, err
}

func (p program) probeHere(ctx context.Context) (recent bool, err error) {
	all := append([]need{{"xt_nat", nat, p.translation()}, {"xt_recent", nat, recentRule}}, needs...)
	if p.try(ctx, all...) == nil {
		return true, nil
	}
	var lacking []string
	var failed error
	recent = true
	for _, n := range all {
		switch err := p.try(ctx, n); {
		case err == nil:
		case n.rule == recentRule:
			recent = false
		default:
			lacking = append(lacking, n.name)
			failed = errors.Join(failed, err)
		}
	}
	if failed != nil {
		return false, fmt.Errorf("%s does not work with what this kernel has; what is needed and lacks: %s: %w", p.restore, strings.Join(lacking, ", "), failed)
	}
	return recent, nil
}

func (p program) translation() string {
	if p.family == model.IPv6 {
		return "-p tcp -j DNAT --to-destination [fd00::1]:1"
	}
	return "-p tcp -j DNAT --to-destination 192.0.2.1:1"
}

func (p program) try(ctx context.Context, list ...need) error {
	var tx transaction
	for t := range tables {
		c := chain{table: t, name: "SKIFF-PROBE"}
		for _, n := range list {
			if n.table == t {
				c.rules = append(c.rules, n.rule)
			}
		}
		if len(c.rules) > 0 {
			tx.put(c)
		}
	}
	return p.commit(ctx, &tx)
}
