package iptables

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"skiff/internal/network/proxy/model"
)

const patience = 5 * time.Second

func sortedKeys(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }

// words splits a rule into words as a shell does.
func words(rule string) []string {
	var out []string
	for i, part := range strings.Split(rule, `"`) {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}

func port(service string, endpoints ...string) *model.Port {
	p := &model.Port{Key: model.Key{Namespace: "default", Service: service, Port: "http", Protocol: model.TCP, Family: model.IPv4}, ClusterIP: netip.MustParseAddr("10.43.0.9"), Port: 80}
	for _, e := range endpoints {
		p.Cluster = append(p.Cluster, model.Endpoint{AddrPort: netip.MustParseAddrPort(e)})
	}
	p.HasAnyEndpoint = len(endpoints) > 0
	return p
}

func testMode(terse bool) *Mode {
	return &Mode{synced: true, renderer: renderer{scheme: kube, recent: true, terse: terse, config: model.Config{
		NodeIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")},
	}}}
}

// TestNames: chains have the names that kube-proxy gives them, which operators know.
func TestNames(t *testing.T) {
	key := model.Key{Namespace: "ns1", Service: "svc1", Port: "p80", Protocol: model.TCP, Family: model.IPv4}
	for _, c := range []struct{ kind, endpoint, want string }{
		{kindService, "", "KUBE-SVC-XPGD46QRK7WJZT7O"},
		{kindEndpoint, "10.180.0.1:80", "KUBE-SEP-SXIVWICOYRO3J4NJ"},
	} {
		if got := kube.chain(c.kind, key, c.endpoint); got != c.want || !kube.isPortChain(got) || skiff.isPortChain(got) {
			t.Errorf("%s, want %s, which is kube-proxy's; ours: %v", got, c.want, kube.isPortChain(got))
		}
	}
	for _, s := range []string{"KUBE-SVC-", "KUBE-SVC-XPGD46QRK7WJZT7", "KUBE-SVC-XPGD46QRK7WJZT70", "KUBE-SERVICES", "KUBE-FIREWALL", "SVC-XPGD46QRK7WJZT7O", "KUBE-XLB-XPGD46QRK7WJZT7O"} {
		if kube.isPortChain(s) {
			t.Errorf("%s is not a chain of a Port's", s)
		}
	}
	for s := range sharedChains {
		if n := len(skiff.shared(s)); n > 28 {
			t.Errorf("%s has %d characters", skiff.shared(s), n)
		}
	}
	if n := len(skiff.chain(kindService, key, "")); n > 28 {
		t.Errorf("%d characters", n)
	}
}

// TestFigure: endpoints are chosen at random, all with the same probability.
func TestFigure(t *testing.T) {
	m := testMode(true)
	p := port("web", "10.42.0.2:8080", "10.42.0.3:8080", "10.42.1.2:8080")
	var rules []string
	for _, c := range m.renderer.chains(p) {
		for _, r := range c.rules {
			rules = append(rules, c.name+" "+r)
		}
	}
	svc, sep := kube.chain(kindService, p.Key, ""), func(i int) string { return m.renderer.endpoint(p, p.Cluster[i]) }
	want := []string{
		svc + " -d 10.43.0.9 -p tcp -m tcp --dport 80 ! -s 10.42.0.0/16 -j KUBE-MARK-MASQ",
		svc + " -m statistic --mode random --probability 0.3333333333 -j " + sep(0),
		svc + " -m statistic --mode random --probability 0.5000000000 -j " + sep(1),
		svc + " -j " + sep(2),
	}
	for i, e := range p.Cluster {
		want = append(want, sep(i)+" -s "+e.Addr().String()+" -j KUBE-MARK-MASQ", sep(i)+" -p tcp -j DNAT --to-destination "+e.AddrPort.String())
	}
	if !slices.Equal(rules, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(rules, "\n"), strings.Join(want, "\n"))
	}
}

// TestComments: no name can end a comment, although the API allows only harmless names.
func TestComments(t *testing.T) {
	for _, name := range []string{"a\" -j ACCEPT\nCOMMIT", "ä\x00\\'", strings.Repeat("x", 1000)} {
		c := comment(name)
		text := strings.TrimSuffix(strings.TrimPrefix(c, `-m comment --comment "`), `" `)
		if strings.ContainsAny(text, "\"\n\\'\x00") || len(text) > maxComment || c != `-m comment --comment "`+text+`" ` {
			t.Errorf("%q", c)
		}
	}
}

// TestPartial: only changes are written: in a large cluster one more endpoint is a few lines, and the chain with a rule for each Service is not written.
func TestPartial(t *testing.T) {
	m := testMode(false)
	state := &model.State{Ports: map[model.Key]*model.Port{}}
	for i := range 2000 {
		p := port(fmt.Sprint("svc-", i), fmt.Sprintf("10.42.%d.%d:8080", i/200, i%200+2))
		p.ClusterIP = netip.AddrFrom4([4]byte{10, 43, byte(i / 200), byte(i % 200)})
		state.Ports[p.Key] = p
	}
	change := func(old, now *model.Port) string {
		key := model.Key{}
		if old != nil {
			key = old.Key
			delete(state.Ports, key)
		}
		if now != nil {
			key = now.Key
			state.Ports[key] = now
		}
		return string(bytes.Join(m.changed(model.IPv4, state, []model.Change{{Key: key, Old: old, New: now}}).texts(limitNFT), nil))
	}
	one, two := port("web", "10.42.0.2:8080"), port("web", "10.42.0.2:8080", "10.42.0.3:8080")
	svc, sep := kube.chain(kindService, one.Key, ""), m.renderer.endpoint(two, two.Cluster[1])
	if text := change(nil, one); !strings.Contains(text, ":KUBE-SERVICES - ") || strings.Count(text, "\n") < 2000 || strings.Contains(text, "*filter") {
		t.Errorf("a new Service:\n%.1000s", text)
	}
	text := change(one, two)
	if lines := strings.Count(text, "\n"); lines != 9 || !strings.Contains(text, ":"+svc) || !strings.Contains(text, ":"+sep) || strings.Contains(text, ":KUBE-SERVICES") {
		t.Errorf("one more endpoint comes to %d lines:\n%.3000s", lines, text)
	}
	text = change(two, one)
	if !strings.Contains(text, "-X "+sep+"\n") || strings.Contains(text, ":KUBE-SERVICES") || strings.Count(text, "\n") != 7 {
		t.Errorf("one endpoint less:\n%.3000s", text)
	}
	if text := change(one, port("web")); !strings.Contains(text, "*filter") || !strings.Contains(text, "-X "+svc+"\n") || !strings.Contains(text, ":KUBE-SERVICES") {
		t.Errorf("none left:\n%.1000s", text)
	}
	if text := change(port("web"), port("web")); text != "" {
		t.Errorf("nothing changed:\n%.1000s", text)
	}
	// With many endpoints their rules have no comments.
	m.count(state, nil, true)
	if !m.renderer.terse {
		t.Error("2,000 endpoints are many")
	}
}

func FuzzRead(f *testing.F) {
	f.Add("*nat\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n")
	f.Add("-A\n-A \n:\n*\n*filter\n:")
	f.Fuzz(func(t *testing.T, text string) {
		found, err := kube.read(strings.NewReader(text))
		if err != nil {
			return
		}
		for t2 := range tables {
			for name := range found.chains[t2] {
				if !strings.HasPrefix(name, "KUBE-") {
					t.Errorf("%q is not ours", name)
				}
			}
		}
	})
}

// TestPieces: a transaction in pieces is written in an order in which no rule jumps to a chain that does not exist yet, or no longer.
func TestPieces(t *testing.T) {
	m := testMode(true)
	state, gone := cluster(400), cluster(900)
	for i := range 400 {
		key := port(fmt.Sprint("svc-", i)).Key
		delete(gone.Ports, key)
		state.Ports[key].NodePort, state.Ports[key].ExternalLocal = uint16(30000+i), i%2 == 0
	}
	there := &found{}
	for i := range there.chains {
		there.chains[i] = map[string]struct{}{}
	}
	leads := map[string]map[string]bool{} // the jumps from chain to chain in the table nat
	for _, c := range m.everything(model.IPv4, gone, there).written[nat] {
		there.chains[nat][c.name] = struct{}{}
		leads[c.name] = map[string]bool{}
		for _, rule := range c.rules {
			to, _ := target(rule)
			leads[c.name][to] = true
		}
	}
	texts := m.everything(model.IPv4, state, there).texts(limitNFT)
	if len(texts) < 8 {
		t.Fatalf("%d pieces", len(texts))
	}
	written := 0
	for _, text := range texts {
		table := ""
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			switch {
			case line[0] == '*':
				table = words[0]
			case table != "*nat":
			case line[0] == ':':
				leads[words[0][1:]] = map[string]bool{}
				written++
			case words[0] == "-A":
				to, ok := target(strings.TrimSpace(line))
				if _, there := leads[to]; ok && strings.HasPrefix(to, "KUBE-") && !there {
					t.Fatalf("%s leads to nowhere", line)
				}
				leads[words[1]][to] = true
			case words[0] == "-X":
				for from, to := range leads {
					if to[words[1]] {
						t.Fatalf("%s is removed, and %s leads to it", words[1], from)
					}
				}
				delete(leads, words[1])
			}
		}
		if n := strings.Count(string(text), "\n:"); n > 2*pieceSize {
			t.Errorf("%d chains in one pieceSize", n)
		}
	}
	if len(leads) != written-500*11 {
		t.Errorf("%d chains are left of %d", len(leads), written)
	}
	if got := m.everything(model.IPv4, cluster(10), &found{}).texts(limitNFT); len(got) != 1 {
		t.Errorf("a small cluster in %d pieces", len(got))
	}
}
