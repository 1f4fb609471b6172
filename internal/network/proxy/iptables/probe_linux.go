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

// probeTimeout bounds probe.
const probeTimeout = 30 * time.Second

// requirement is a kernel module with a rule that uses it.
type requirement struct {
	name  string
	table table
	rule  string
}

var requirements = []requirement{
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

// probe tries the required modules in a new network namespace, so that nothing is changed in this one. It reports whether the kernel has the module
// recent, and fails if another one is missing.
func (p program) probe(ctx context.Context) (recent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, so that no other goroutine runs in the namespace
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("failed to create a network namespace to probe the kernel's iptables modules: %w", err)
			return
		}
		recent, err = p.probeHere(ctx)
	}()
	<-done
	return recent, err
}

func (p program) probeHere(ctx context.Context) (recent bool, err error) {
	all := append([]requirement{{"xt_nat", nat, p.translation()}, {"xt_recent", nat, recentRule}}, requirements...)
	if p.try(ctx, all...) == nil {
		return true, nil
	}
	var missing []string
	var failed error
	recent = true
	for _, n := range all {
		switch err := p.try(ctx, n); {
		case err == nil:
		case n.rule == recentRule:
			recent = false
		default:
			missing = append(missing, n.name)
			failed = errors.Join(failed, err)
		}
	}
	if failed != nil {
		return false, fmt.Errorf("%s does not work with this kernel; load or build the missing modules: %s: %w", p.restore, strings.Join(missing, ", "), failed)
	}
	return recent, nil
}

func (p program) translation() string {
	if p.family == model.IPv6 {
		return "-p tcp -j DNAT --to-destination [fd00::1]:1"
	}
	return "-p tcp -j DNAT --to-destination 192.0.2.1:1"
}

func (p program) try(ctx context.Context, list ...requirement) error {
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
