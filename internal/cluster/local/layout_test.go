package local

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

func TestChooseSubnet(t *testing.T) {
	for name, c := range map[string]struct {
		used []netip.Prefix
		want string
	}{
		"nothing is used":         {nil, "172.30.0.0/24"},
		"others are used":         {prefixes("10.0.0.0/8", "192.168.1.0/24"), "172.30.0.0/24"},
		"the first is used":       {prefixes("172.30.0.0/24"), "172.30.1.0/24"},
		"an address of the first": {prefixes("172.30.0.7/32"), "172.30.1.0/24"},
		"a range over the first":  {prefixes("172.30.0.0/22"), "172.30.4.0/24"},
		"all are used":            {prefixes("172.16.0.0/12"), ""},
	} {
		got, err := chooseSubnet(c.used)
		if c.want == "" && err == nil || c.want != "" && got.String() != c.want {
			t.Errorf("%s: %v, %v; want %s", name, got, err, c.want)
		}
	}
}

// fresh is the layout of a cluster that is new.
func fresh(t *testing.T, name string, nodes int) *Layout {
	t.Helper()
	l := &Layout{Name: name, Subnet: netip.MustParsePrefix("172.30.4.0/24"), Port: 6443, dataDir: t.TempDir()}
	if err := l.grow(nodes); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLayoutStays(t *testing.T) {
	l := fresh(t, "ship", 2)
	if err := l.save(); err != nil {
		t.Fatal(err)
	}
	again, err := Load(l.dataDir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.grow(3); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"ship-1 172.30.4.11", "ship-2 172.30.4.12", "ship-3 172.30.4.13"} {
		n := again.Nodes[i]
		if got := n.Name + " " + n.Address.String(); got != want {
			t.Errorf("node %d is %s, not %s", i+1, got, want)
		}
		if i < 2 && n != l.Nodes[i] {
			t.Errorf("node %d was %+v and is %+v", i+1, l.Nodes[i], n)
		}
		if n.Server() != (i == 0) {
			t.Errorf("node %d is the server: %v", i+1, n.Server())
		}
	}
	if again.Nodes[0].MachineID == again.Nodes[1].MachineID {
		t.Error("two machines have the same id")
	}
	if err := again.grow(1); err == nil {
		t.Error("nodes became fewer")
	}
	if again.id() != l.id() || again.device() == fresh(t, "ship", 1).device() {
		t.Error("names on the machine are not the data directory's own")
	}
	if len(again.device()) > 15 {
		t.Errorf("%s is too long for an interface", again.device())
	}
}

func TestMostNodes(t *testing.T) {
	l := fresh(t, "fleet", MaxNodes)
	seen := map[string]bool{}
	for _, n := range l.Nodes {
		if !l.Subnet.Contains(n.Address) || n.Address == l.gateway() || seen[n.Address.String()] || len(n.port()) > 15 {
			t.Errorf("%+v", n)
		}
		seen[n.Address.String()] = true
	}
}

func TestSpoiltLayout(t *testing.T) {
	l := fresh(t, "ship", 2)
	if err := l.save(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(layoutPath(l.dataDir))
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(string) string{
		"cut short":       func(s string) string { return s[:len(s)/2] },
		"empty":           func(string) string { return "{}" },
		"a path as name":  func(s string) string { return strings.Replace(s, `"ship-2"`, `"../../etc"`, 1) },
		"another network": func(s string) string { return strings.Replace(s, "172.30.4.12", "10.0.0.1", 1) },
		"numbers":         func(s string) string { return strings.Replace(s, `"number": 2`, `"number": 7`, 1) },
		"no machine id":   func(s string) string { return strings.Replace(s, l.Nodes[1].MachineID, "", 1) },
		"port":            func(s string) string { return strings.Replace(s, "6443", "99999", 1) },
	} {
		if err := os.WriteFile(layoutPath(l.dataDir), []byte(spoil(string(good))), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(l.dataDir); err == nil || !strings.Contains(err.Error(), "nodes.json") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Load(filepath.Join(l.dataDir, "none")); err == nil || !strings.Contains(err.Error(), "skiff up --nodes") {
		t.Errorf("%v", err)
	}
}
