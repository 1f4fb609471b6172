package pki

import (
	"crypto/x509"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skiff/test/seed"
)

// When a certificate is renewed, by how long it lasts.
func TestWhenToRenew(t *testing.T) {
	for _, test := range []struct {
		authority, leaf, after time.Duration
		newLeaf, newAuthority  bool
	}{
		{10 * year, year, 0, false, false},
		{10 * year, year, 334 * day, false, false},
		{10 * year, year, 336 * day, true, false}, // 30 days before its end
		{10 * year, year, 9*year - day, true, false},
		{10 * year, year, 9*year + day, true, true}, // a leaf's life before its end
		{hour, time.Minute, 35 * time.Second, false, false},
		{hour, time.Minute, 45 * time.Second, true, false}, // a third before its end
		{hour, time.Minute, 30 * time.Minute, true, false},
		{hour, time.Minute, 45 * time.Minute, true, true}, // a third before, less than 30 days
		{90 * day, 60 * day, 70 * day, true, true},
		{10 * year, year, -4 * time.Minute, false, false}, // clocks differ
		{10 * year, year, -6 * time.Minute, true, true},
	} {
		o := options(t.TempDir(), &clock{})
		o.AuthorityLife, o.LeafLife = test.authority, test.leaf
		before := serials(open(t, o))
		c := &clock{}
		c.set(test.after)
		o.Now = c.now
		m := open(t, o)
		verify(t, m, c.now())
		after := serials(m)
		if (before[Admin] != after[Admin]) != test.newLeaf || (before[CA] != after[CA]) != test.newAuthority {
			t.Errorf("of %v and %v after %v: new leaf %v, new authority %v", test.authority, test.leaf, test.after, before[Admin] != after[Admin], before[CA] != after[CA])
		}
	}
}

// A start after everything has ended, or with a clock that was or is wrong, leaves everything good at the time it is now.
func TestStartAtAnyTime(t *testing.T) {
	dir, c := t.TempDir(), &clock{}
	first := open(t, options(dir, c))
	key := first.current.Load().authorities[CA].cert.PublicKey
	for _, shift := range []time.Duration{2 * year, 0, 20 * year, 0, -20 * year, 0, 9*year + day, -year, 30 * day, 0} {
		c.set(shift)
		m := open(t, options(dir, c))
		verify(t, m, c.now())
		if a := m.current.Load().authorities[CA]; !samePublicKey(a.cert.PublicKey, key) || len(a.certs) != 1 {
			t.Errorf("at %v the authority has another key, or keeps %d certificates", shift, len(a.certs))
		}
	}
}

// Who holds something from before an authority's renewal gets along with who holds something from after it.
func TestOldAndNewAuthority(t *testing.T) {
	dir, c := t.TempDir(), &clock{}
	old := open(t, options(dir, c))
	c.set(9*year + day)
	renewed := open(t, options(dir, c))
	if string(old.Bundle(CA)) == string(renewed.Bundle(CA)) {
		t.Fatal("the authority was not renewed")
	}
	for _, test := range []struct {
		what       string
		leaf, root *Manager
		now        time.Time
	}{
		{"an old leaf and the new authority", old, renewed, time.Now().Add(day)},
		{"a new leaf and the old authority", renewed, old, c.now()},
	} {
		p, err := test.leaf.Certificate(APIServer)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Leaf.Verify(x509.VerifyOptions{Roots: test.root.Pool(CA), CurrentTime: test.now, DNSName: "kubernetes"}); err != nil {
			t.Errorf("%s: %v", test.what, err)
		}
	}
}

// Whatever file is cut short wherever, the next start mends it.
func TestTornFiles(t *testing.T) {
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 0))
	dir, c := t.TempDir(), &clock{}
	m := open(t, options(dir, c))
	paths := m.paths()
	for round := range 60 {
		torn := []string{paths[round%len(paths)]}
		for range random.IntN(3) {
			torn = append(torn, paths[random.IntN(len(paths))])
		}
		for _, path := range torn {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, random.Int64N(info.Size()+1)); err != nil {
				t.Fatal(err)
			}
		}
		m, err := Open(options(dir, c))
		if err != nil {
			t.Fatalf("after cutting %v: %v", torn, err)
		}
		verify(t, m, c.now())
		if !m.current.Load().holds(c.now()) {
			t.Errorf("after cutting %v something is due at once", torn)
		}
	}
}

// A new key of an authority or of service accounts is made only if the old one is lost; what was signed with the old one is accepted on.
func TestLostKeys(t *testing.T) {
	dir, c := t.TempDir(), &clock{}
	before := open(t, options(dir, c))
	for _, file := range []string{"ca.crt", "etcd/ca.crt", "sa.pub"} {
		if err := os.Truncate(filepath.Join(dir, file), 20); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"front-proxy-ca.key", "sa.key"} {
		if err := os.Truncate(filepath.Join(dir, file), 0); err != nil {
			t.Fatal(err)
		}
	}
	after := open(t, options(dir, c))
	verify(t, after, c.now())
	for authority, kept := range map[string]bool{CA: true, EtcdCA: true, FrontProxyCA: false} {
		old, now := before.current.Load().authorities[authority], after.current.Load().authorities[authority]
		if samePublicKey(old.cert.PublicKey, now.cert.PublicKey) != kept || (len(now.certs) == 1) != kept {
			t.Errorf("%s: key kept %v, %d certificates", authority, !kept, len(now.certs))
		}
		for _, l := range before.leaves {
			p, err := before.Certificate(l.Name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Leaf.Verify(x509.VerifyOptions{Roots: now.pool, KeyUsages: l.usages()}); l.Authority == authority && err != nil {
				t.Errorf("%s is not accepted any more: %v", l.Name, err)
			}
		}
	}
	if keys := after.AccountKeys(); len(keys) != 1 || !samePublicKey(keys[0], after.AccountSigner().Public()) {
		t.Errorf("with both cut short, %d keys are left for service accounts", len(keys))
	}
	if err := os.Remove(filepath.Join(dir, "sa.key")); err != nil {
		t.Fatal(err)
	}
	last := open(t, options(dir, c))
	if keys := last.AccountKeys(); len(keys) != 2 || !samePublicKey(keys[1], after.AccountSigner().Public()) || !samePublicKey(keys[0], last.AccountSigner().Public()) {
		t.Errorf("after a change of the key, %d keys verify tokens", len(keys))
	}
	c.set(11 * year)
	if got := len(open(t, options(dir, c)).current.Load().authorities[FrontProxyCA].certs); got != 1 {
		t.Errorf("%d certificates are trusted after the old one has ended", got)
	}
}

// A key and a certificate that do not belong together are made anew, as a crash between the two may leave them.
func TestPairsThatDoNotFit(t *testing.T) {
	dir, c := t.TempDir(), &clock{}
	m := open(t, options(dir, c))
	trusted := m.current.Load().authorities[CA].cert
	other := open(t, options(t.TempDir(), c))
	for _, file := range []string{"ca.key", "scheduler.key", "apiserver.crt"} {
		data, err := os.ReadFile(filepath.Join(other.o.Dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mended := open(t, options(dir, c))
	verify(t, mended, c.now())
	a := mended.current.Load().authorities[CA]
	if len(a.certs) != 2 || !a.certs[1].Equal(trusted) || !samePublicKey(a.cert.PublicKey, other.current.Load().authorities[CA].cert.PublicKey) {
		t.Errorf("the authority has %d certificates", len(a.certs))
	}
	if before, after := serials(m), serials(mended); before[EtcdServer] != after[EtcdServer] || before[FrontProxyClient] != after[FrontProxyClient] {
		t.Error("what fits was made anew too")
	}
}

func TestWrongPermissions(t *testing.T) {
	dir, c := t.TempDir(), &clock{}
	m := open(t, options(dir, c))
	for _, path := range m.paths() {
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range m.dirs() {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "admin.key"+partSuffix), nil, 0o644); err != nil { // of a killed process
		t.Fatal(err)
	}
	before := serials(m)
	if after := serials(open(t, options(dir, c))); after[Admin] != before[Admin] {
		t.Error("made anew without need")
	}
	onlyOwner(t, dir)
}
