package iptables

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/network/proxy/model"
	"skiff/internal/network/proxy/proxytest"
)

// TestOthers: foreign rules stay as they are, also in chains with names like the mode's, and in chains with jumps to the mode's.
func TestOthers(t *testing.T) {
	for _, variant := range []string{"nft", "legacy"} {
		t.Run(variant, func(t *testing.T) {
			use(t, variant)
			for _, program := range []string{"iptables", "ip6tables"} {
				for _, rule := range []string{
					"-t nat -N KUBE-SVC-MINE", "-t nat -A KUBE-SVC-MINE -j RETURN", "-t nat -A PREROUTING -j KUBE-SVC-MINE", "-N KUBE-FIREWALL", "-A INPUT -j KUBE-FIREWALL",
					"-A FORWARD -p tcp --dport 7 -j ACCEPT", "-t mangle -N KUBE-SERVICES", "-t mangle -A OUTPUT -j KUBE-SERVICES", "-t nat -N KUBE-SVC-abcdefghijklmnop",
				} {
					run(t, program, strings.Fields(rule)...)
				}
				if variant == "legacy" {
					t.Cleanup(func() {
						for _, rule := range []string{"-t nat -F", "-t nat -X", "-F", "-X", "-t mangle -F", "-t mangle -X"} {
							run(t, program, strings.Fields(rule)...)
						}
					})
				}
			}
			t.Cleanup(func() { flush(t) })
			before := listing(t)
			w := proxytest.NewCluster(t, options)
			w.NewService(t, func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeLoadBalancer
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
				s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
				s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				s.Spec.Ports[0].NodePort = 30080
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}
			}, "pod0", "far")
			w.NewService(t, nil)
			theirs := func() string {
				var out strings.Builder
				for line := range strings.Lines(listing(t)) {
					rule := strings.TrimSpace(line)
					to, _ := target(rule)
					of, _, _ := strings.Cut(strings.TrimLeft(strings.TrimPrefix(rule, "-A "), ":"), " ")
					if !strings.HasPrefix(rule, "*") && (kube.isPortChain(of) || kube.isPortChain(to) || kube.isFixedChain(nat, of) || kube.isFixedChain(filter, of) || kube.isFixedChain(nat, to) || kube.isFixedChain(filter, to)) {
						if !strings.Contains(before, line) { // the foreign chain of the same name is in the table mangle
							continue
						}
					}
					out.WriteString(line)
				}
				return out.String()
			}
			if got := unordered(theirs()); got != unordered(before) {
				t.Errorf("while the proxy runs:\n%s\nbefore:\n%s", got, unordered(before))
			}
			if !strings.Contains(listing(t), "-j KUBE-MARK-MASQ") {
				t.Error("there is nothing of ours")
			}
			if err := Clean(); err != nil {
				t.Fatal(err)
			}
			if got := listing(t); got != before {
				t.Errorf("afterwards:\n%s\nbefore:\n%s", got, before)
			}
			w.Tracker.ResyncAll()
			w.Sync(t)
		})
	}
}

// unordered returns the lines sorted, each once.
func unordered(s string) string {
	seen := map[string]bool{}
	for line := range strings.Lines(s) {
		seen[line] = true
	}
	return strings.Join(sortedKeys(seen), "")
}

// TestJumps: a removed jump is noticed, and inserted again by the next full Sync, once.
func TestJumps(t *testing.T) {
	w := proxytest.NewCluster(t, options)
	s := w.NewService(t, nil, "pod0")
	m := w.Mode.(*Mode)
	whole := listing(t)
	for _, j := range m.renderer.jumps() {
		run(t, "iptables", append([]string{"-t", j.table.String(), "-D", j.from}, words(j.filter+"-j "+j.to)...)...)
		if intact, err := m.Intact(t.Context()); err != nil || intact {
			t.Fatalf("without the jump from %s to %s: intact %v, %v", j.from, j.to, intact, err)
		}
		w.Tracker.ResyncAll()
		w.Sync(t)
		if intact, err := m.Intact(t.Context()); err != nil || !intact {
			t.Fatalf("the jump from %s to %s is back: intact %v, %v", j.from, j.to, intact, err)
		}
	}
	if got := listing(t); unordered(got) != unordered(whole) || strings.Count(got, "\n") != strings.Count(whole, "\n") {
		t.Errorf("in the end:\n%s\nat first:\n%s", got, whole)
	}
	if got, err := w.Pods[1].Ask("tcp", s.At(model.IPv4), patience); err != nil || got.Who != "pod0" {
		t.Error(got, err)
	}
}

// TestLeftovers: chains of an earlier run for deleted Services are removed, and the same Services give the same rules.
func TestLeftovers(t *testing.T) {
	w := proxytest.NewCluster(t, options)
	kept := w.NewService(t, nil, "pod0", "pod1")
	only := listing(t)
	gone := w.NewService(t, func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeNodePort, []string{"203.0.113.7"}
		s.Spec.Ports[0].NodePort = 30070
	}, "pod2", "far")
	both := listing(t)
	if err := w.Mode.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := New(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	w.Mode = next
	gone.Delete(t) // the new instance has not observed it
	w.Tracker.ResyncAll()
	w.Sync(t)
	if got := listing(t); got != only || got == both {
		t.Errorf("after the restart:\n%s\nwith the one Service only:\n%s", got, only)
	}
	kept.SetEndpoints(t, "pod1")
	kept.SetEndpoints(t, "pod0", "pod1")
	if got := listing(t); got != only {
		t.Errorf("after changes there and back:\n%s\nat first:\n%s", got, only)
	}
}

// TestRefused: the error of a failed Sync names the rule, and the next Sync writes everything.
func TestRefused(t *testing.T) {
	w := proxytest.NewCluster(t, options)
	w.NewService(t, nil, "pod0")
	run(t, "iptables", "-t", "nat", "-F")
	run(t, "iptables", "-t", "nat", "-X")
	state := &model.State{Ports: map[model.Key]*model.Port{}}
	old := port("pod0", "10.42.0.2:8080")
	err := w.Mode.Sync(context.Background(), state, model.Changes{Ports: []model.Change{{Key: old.Key, Old: old, New: port("pod0", "10.42.0.2:8080", "10.42.0.3:8080")}}})
	if err == nil || !strings.Contains(err.Error(), "KUBE-MARK-MASQ") {
		t.Errorf("a chain that all others need is gone: %v", err)
	}
	if intact, err := w.Mode.Intact(t.Context()); intact || err != nil {
		t.Errorf("intact %v, %v", intact, err)
	}
	p, err := find(model.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	err = p.write(t.Context(), []byte("*nat\n-A NO-SUCH-CHAIN -j RETURN\nCOMMIT\n"))
	if err == nil || !strings.Contains(err.Error(), "-A NO-SUCH-CHAIN -j RETURN") {
		t.Errorf("the error does not show the rule: %v", err)
	}
	if _, err := New(model.Config{}); err != nil {
		t.Error(err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := New(w.Config); err == nil || !strings.Contains(err.Error(), "package iptables") {
		t.Errorf("without iptables: %v", err)
	}
	if err := Clean(); err != nil {
		t.Errorf("where there is no iptables there is nothing to remove: %v", err)
	}
}

// TestNothingLeft: where there were no iptables tables before, Clean leaves none, not even empty ones.
func TestNothingLeft(t *testing.T) {
	use(t, "nft")
	all := func() (out []string) {
		c, err := nftables.New()
		if err != nil {
			t.Fatal(err)
		}
		list, err := c.ListTables()
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range list {
			out = append(out, table.Name)
		}
		return out
	}
	flush(t)
	before := all()
	w := proxytest.NewCluster(t, options)
	w.NewService(t, nil, "pod0")
	if during := all(); len(during) != len(before)+4 { // nat and filter of both families
		t.Errorf("while the proxy runs: %v, before: %v", during, before)
	}
	if err := Clean(); err != nil {
		t.Fatal(err)
	}
	if after := all(); !slices.Equal(after, before) {
		t.Errorf("afterwards: %v, before: %v", after, before)
	}
	w.Tracker.ResyncAll()
	w.Sync(t)
}

// flush removes all rules from the network namespace of the tests.
func flush(t *testing.T) {
	t.Helper()
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	c.FlushRuleset()
	if err := c.Flush(); err != nil {
		t.Error(err)
	}
}

// TestFind: nodes in namespaces have the machine's /usr and an /etc of their own, where Debian's links to the chosen variant lead nowhere.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	for name, to := range map[string]string{
		"iptables-save": "/nowhere", "iptables-restore": "/nowhere", "iptables-nft-save": "", "iptables-nft-restore": "", "iptables-legacy-save": "", "iptables-legacy-restore": "",
	} {
		if to == "" {
			to = "/proc/self/exe"
		}
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	if p, err := find(model.IPv4); err != nil || filepath.Base(p.restore) != "iptables-nft-restore" || filepath.Base(p.save) != "iptables-nft-save" {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := find(model.IPv6); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("%+v, %v", p, err)
	}
}
