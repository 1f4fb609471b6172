package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// clock is a clock that can be set.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time      { return time.Now().Add(time.Duration(c.offset.Load())) }
func (c *clock) set(d time.Duration) { c.offset.Store(int64(d)) }

const (
	hour = time.Hour
	day  = 24 * hour
	year = 365 * day
)

func options(dir string, c *clock) Options {
	return Options{Dir: dir, Now: c.now, Log: slog.New(slog.DiscardHandler), NodeName: "one", Addresses: []string{"0.0.0.0", "192.0.2.7"},
		ServiceCIDRs: []string{"10.43.0.0/16", "fd00::/112"}, SANs: []string{"api.example.org", "*.apps.example.org", "198.51.100.1"}}
}

func open(t testing.TB, o Options) *Manager {
	t.Helper()
	m, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// verify checks that all of a manager's certificates are good at a time, and that the files hold the same.
func verify(t testing.TB, m *Manager, now time.Time) {
	t.Helper()
	for _, l := range m.leaves {
		p := m.current.Load().pairs[l.Name]
		if _, err := p.tls.Leaf.Verify(x509.VerifyOptions{Roots: m.Pool(l.Authority), CurrentTime: now, KeyUsages: l.usages()}); err != nil {
			t.Errorf("%s: %v", l.Name, err)
		}
		if onDisk, err := readPair(m.file(l.Name, "")); err != nil || string(onDisk.certPEM) != string(p.certPEM) || string(onDisk.keyPEM) != string(p.keyPEM) {
			t.Errorf("%s is not what its files hold: %v", l.Name, err)
		}
	}
	for _, a := range authorities {
		if data, err := os.ReadFile(m.AuthorityFile(a)); err != nil || strings.TrimSpace(string(data)) != strings.TrimSpace(string(m.Bundle(a))) {
			t.Errorf("%s is not what its file holds: %v", a, err)
		}
	}
}

func serials(m *Manager) map[string]string {
	out := map[string]string{}
	for _, a := range authorities {
		out[a] = m.current.Load().authorities[a].cert.SerialNumber.String()
	}
	for name, p := range m.current.Load().pairs {
		out[name] = p.tls.Leaf.SerialNumber.String()
	}
	return out
}

func TestEverythingIsMade(t *testing.T) {
	dir, c := filepath.Join(t.TempDir(), "pki"), &clock{}
	m := open(t, options(dir, c))
	if err := m.Ensure(NodeLeaves("one", "192.0.2.7")...); err != nil {
		t.Fatal(err)
	}
	verify(t, m, c.now())
	want := map[string]struct {
		authority, user string
		groups          []string
	}{
		APIServer:              {CA, "kube-apiserver", nil},
		APIServerKubeletClient: {CA, "kube-apiserver-kubelet-client", nil},
		FrontProxyClient:       {FrontProxyCA, "front-proxy-client", nil},
		Admin:                  {CA, "kubernetes-admin", []string{"system:masters"}},
		ControllerManager:      {CA, "system:kube-controller-manager", nil},
		Scheduler:              {CA, "system:kube-scheduler", nil},
		Proxy:                  {CA, "system:kube-proxy", nil},
		KubeletClient:          {CA, "system:node:one", []string{"system:nodes"}},
		Kubelet:                {CA, "system:node:one", []string{"system:nodes"}},
		EtcdServer:             {EtcdCA, "etcd", nil},
		EtcdHealthcheckClient:  {EtcdCA, "kube-etcd-healthcheck-client", nil},
		APIServerEtcdClient:    {EtcdCA, "kube-apiserver-etcd-client", nil},
	}
	if len(m.leaves) != len(want) {
		t.Errorf("%d leaves, want %d", len(m.leaves), len(want))
	}
	for name, w := range want {
		p, err := m.Certificate(name)
		if err != nil {
			t.Fatal(err)
		}
		leaf := p.Leaf
		if leaf.Subject.CommonName != w.user || !slices.Equal(leaf.Subject.Organization, w.groups) {
			t.Errorf("%s is for %s", name, leaf.Subject)
		}
		if key, ok := leaf.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
			t.Errorf("the key of %s is a %T", name, leaf.PublicKey)
		}
		for _, a := range authorities {
			_, err := leaf.Verify(x509.VerifyOptions{Roots: m.Pool(a), CurrentTime: c.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
			if (err == nil) != (a == w.authority) {
				t.Errorf("%s against %s: %v", name, a, err)
			}
		}
		if got := leaf.NotAfter.Sub(c.now()).Round(hour); got != year {
			t.Errorf("%s lasts %v", name, got)
		}
	}
	for _, a := range authorities {
		ca := m.current.Load().authorities[a].cert
		if got := ca.NotAfter.Sub(c.now()).Round(hour); got != 10*year || !ca.IsCA || ca.NotBefore.After(c.now().Add(-4*time.Minute)) {
			t.Errorf("%s lasts %v from %v", a, got, ca.NotBefore)
		}
	}
	if !samePublicKey(m.AccountSigner().Public(), m.AccountKeys()[0]) || len(m.AccountKeys()) != 1 {
		t.Error("the keys of service accounts do not fit")
	}
	onlyOwner(t, dir)

	again := open(t, options(dir, c))
	if err := again.Ensure(NodeLeaves("one", "192.0.2.7")...); err != nil {
		t.Fatal(err)
	}
	for name, serial := range serials(again) {
		if serial != serials(m)[name] {
			t.Errorf("%s was made anew without need", name)
		}
	}
	// Who a certificate is for is checked, not only that there is one.
	if err := again.Ensure(NodeLeaves("two")...); err != nil {
		t.Fatal(err)
	}
	if p, err := again.Certificate(KubeletClient); err != nil || p.Leaf.Subject.CommonName != "system:node:two" {
		t.Errorf("the node's new name is not in its certificate: %v", err)
	}
	for _, bad := range []Leaf{{Name: "../x", Authority: CA, User: "u"}, {Name: "x", Authority: "none", User: "u"}, {Name: "x", Authority: CA},
		{Name: "x", Authority: CA, User: "u", Hosts: []string{"a b"}}} {
		if err := again.Ensure(bad); err == nil {
			t.Errorf("%+v was made", bad)
		}
	}
}

func onlyOwner(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[d.IsDir()]; err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v (%v)", path, info.Mode(), err)
		}
		if strings.HasSuffix(path, partSuffix) {
			t.Errorf("%s is left behind", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestServersAreReachedAtTheirNames(t *testing.T) {
	m := open(t, options(t.TempDir(), &clock{}))
	if err := m.Ensure(NodeLeaves("one", "192.0.2.7")...); err != nil {
		t.Fatal(err)
	}
	for leaf, hosts := range map[string][]string{
		APIServer: {"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost", "127.0.0.1", "::1", "one",
			"192.0.2.7", "10.43.0.1", "fd00::1", "api.example.org", "a.apps.example.org", "198.51.100.1"},
		EtcdServer: {"localhost", "127.0.0.1", "::1", "one", "192.0.2.7"},
		Kubelet:    {"one", "localhost", "127.0.0.1", "192.0.2.7"},
	} {
		p, err := m.Certificate(leaf)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range hosts {
			if err := p.Leaf.VerifyHostname(host); err != nil {
				t.Errorf("%s: %v", leaf, err)
			}
		}
		for _, host := range []string{"0.0.0.0", "example.org", "10.43.0.2", "kube-apiserver"} {
			if p.Leaf.VerifyHostname(host) == nil {
				t.Errorf("%s is also for %s", leaf, host)
			}
		}
	}
}

func TestBadOptions(t *testing.T) {
	for why, change := range map[string]func(*Options){
		"neither an IP address nor a DNS name": func(o *Options) { o.SANs = []string{"under_score"} },
		"the service addresses":                func(o *Options) { o.ServiceCIDRs = []string{"10.0.0.0"} },
		"not a directory":                      func(o *Options) { o.Dir = "/dev/null/pki" },
	} {
		o := options(t.TempDir(), &clock{})
		change(&o)
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %q", err, why)
		}
	}
	for host, good := range map[string]bool{"a.b": true, "10.0.0.1": true, "::1": true, "*.a.b": true, "fe80::1%eth0": false, "a..b": false, "": false, "https://a": false} {
		if err := CheckHost(host); (err == nil) != good {
			t.Errorf("%q: %v", host, err)
		}
	}
}

func TestSingle(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	a, err := LoadAuthority(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := a.Serving(dir, APIServer, []string{"localhost", "127.0.0.1"}, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: a.pool, DNSName: "127.0.0.1"}); err != nil {
		t.Error(err)
	}
	if again, err := LoadAuthority(dir, now); err != nil || string(again.PEM()) != string(a.PEM()) {
		t.Errorf("made anew: %v", err)
	}
	m := open(t, options(dir, &clock{}))
	if string(m.Bundle(CA)) != string(a.PEM()) {
		t.Error("a manager has another authority")
	}
}

func TestInMemory(t *testing.T) {
	now := time.Now()
	a, err := NewAuthority(CA, now, hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := a.Issue(Leaf{User: "jane", Groups: []string{"devs"}, Client: true}, now, day)
	if err != nil {
		t.Fatal(err)
	}
	if chains, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: a.pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil ||
		pair.Leaf.Subject.CommonName != "jane" || pair.Leaf.NotAfter.After(chains[0][1].NotAfter) {
		t.Errorf("%s until %v: %v", pair.Leaf.Subject, pair.Leaf.NotAfter, err)
	}
}

func BenchmarkOpen(b *testing.B) {
	b.Run("empty", func(b *testing.B) {
		dir := b.TempDir()
		for i := 0; b.Loop(); i++ {
			o := options(filepath.Join(dir, strconv.Itoa(i)), &clock{})
			o.Leaves = NodeLeaves("one")
			open(b, o)
		}
	})
	b.Run("again", func(b *testing.B) {
		o := options(b.TempDir(), &clock{})
		for b.Loop() {
			open(b, o)
		}
	})
	b.Run("check", func(b *testing.B) {
		m := open(b, options(b.TempDir(), &clock{}))
		for b.Loop() {
			if err := m.check(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
