package pki

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// theirs is an authority of somebody else, with an RSA key.
func theirs(t *testing.T, isCA bool, from, until time.Time) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "Example CA"}, IsCA: isCA, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: from, NotAfter: until}
	der, err := sign(template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	return certificatePEM(der), keyPEM
}

func put(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// An authority that somebody put there is used as it is, and is not renewed.
func TestAuthorityOfTheUser(t *testing.T) {
	dir, c := t.TempDir(), &clock{}
	certPEM, keyPEM := theirs(t, true, time.Now().Add(-day), time.Now().Add(2*year))
	put(t, dir, map[string][]byte{"ca.crt": certPEM, "ca.key": keyPEM})
	m := open(t, options(dir, c))
	verify(t, m, c.now())
	if string(m.Bundle(CA)) != string(certPEM) {
		t.Error("another authority is used")
	}
	// Near its end, leaves end with it and are not made over and over.
	c.set(2*year - 10*day)
	before := serials(open(t, options(dir, c)))
	c.set(2*year - day)
	m = open(t, options(dir, c))
	verify(t, m, c.now())
	if after := serials(m); before[Admin] != after[Admin] {
		t.Error("a leaf that ends with its authority was made anew")
	}
	if s := m.current.Load(); !s.holds(c.now()) || s.until.After(s.authorities[CA].cert.NotAfter) {
		t.Errorf("looks again at %v", s.until)
	}
	c.set(2*year + day)
	if _, err := Open(options(dir, c)); err == nil || !strings.Contains(err.Error(), "skiff cannot renew it") {
		t.Errorf("after its end: %v", err)
	}
	c.set(0)
	// Another put in its place is taken, and all leaves with it.
	certPEM, keyPEM = theirs(t, true, time.Now().Add(-day), time.Now().Add(year))
	put(t, dir, map[string][]byte{"ca.crt": certPEM, "ca.key": keyPEM})
	verify(t, open(t, options(dir, c)), c.now())
	for file, want := range map[string][]byte{"ca.crt": certPEM, "ca.key": keyPEM} {
		if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != string(want) {
			t.Errorf("%s was changed: %v", file, err)
		}
	}
}

// What somebody put there and cannot be used is refused with a reason, and left as it is.
func TestBadAuthorityOfTheUser(t *testing.T) {
	now := time.Now()
	certPEM, keyPEM := theirs(t, true, now.Add(-day), now.Add(year))
	leafPEM, leafKey := theirs(t, false, now.Add(-day), now.Add(year))
	latePEM, lateKey := theirs(t, true, now.Add(-2*day), now.Add(-day))
	earlyPEM, earlyKey := theirs(t, true, now.Add(day), now.Add(2*day))
	encrypted := []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n")
	for why, files := range map[string]map[string][]byte{
		"ca.key is not the key of":                        {"ca.crt": certPEM, "ca.key": leafKey},
		"is not the certificate of an authority":          {"ca.crt": leafPEM, "ca.key": leafKey},
		"it ended at":                                     {"ca.crt": latePEM, "ca.key": lateKey},
		"it begins at":                                    {"ca.crt": earlyPEM, "ca.key": earlyKey},
		"put the key of that certificate there":           {"ca.crt": certPEM, "ca.key": keyPEM[:100]},
		"a key must be RSA or ECDSA and not encrypted":    {"ca.crt": certPEM, "ca.key": encrypted},
		"ca.crt is not in PEM":                            {"ca.crt": {0x30, 0x82, 1, 2}, "ca.key": keyPEM},
		"sa.key: data does not contain a valid RSA":       {"sa.key": encrypted},
		"sa.pub: data does not contain any valid RSA":     {"sa.pub": encrypted},
		"ca.crt: data does not contain any valid":         {"ca.crt": encrypted, "ca.key": keyPEM},
		"is larger than":                                  {"ca.crt": make([]byte, maxFileSize+1)},
		"and ca.key is not there to sign new ones":        {"ca.crt": certPEM},
		"for user \"system:kube-scheduler\" in groups []": {"ca.crt": certPEM},
	} {
		dir := t.TempDir()
		put(t, dir, files)
		why = strings.ReplaceAll(why, "and ca.key", "and "+filepath.Join(dir, "ca.key"))
		if _, err := Open(options(dir, &clock{})); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v\nwant %q", err, why)
		}
		for name, want := range files {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != string(want) {
				t.Errorf("%s: %s was changed: %v", why, name, err)
			}
		}
	}
}

// An authority whose key is kept elsewhere signs nothing here; certificates that are put there are used, also while the cluster runs.
func TestExternalAuthority(t *testing.T) {
	dir, c := t.TempDir(), &clock{}
	open(t, options(dir, c))
	signing := filepath.Join(t.TempDir(), "ca.key")
	if err := os.Rename(filepath.Join(dir, "ca.key"), signing); err != nil {
		t.Fatal(err)
	}
	c.set(350 * day) // time to renew
	m := open(t, options(dir, c))
	verify(t, m, c.now())
	if err := m.check(); err != nil {
		t.Error(err)
	}
	authority := m.current.Load().authorities[CA]
	key, err := readKey(signing)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := newAuthority(authority.certs, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range m.leaves {
		if l.Authority != CA {
			continue
		}
		certPEM, keyPEM, err := elsewhere.issue(l, c.now(), year)
		if err != nil {
			t.Fatal(err)
		}
		put(t, dir, map[string][]byte{l.Name + ".crt": certPEM, l.Name + ".key": keyPEM})
	}
	before := serials(m)
	if err := m.check(); err != nil {
		t.Error(err)
	}
	verify(t, m, c.now())
	if after := serials(m); after[APIServer] == before[APIServer] || after[CA] != before[CA] {
		t.Error("a certificate that was put there is not used")
	}
	c.set(3 * year)
	if err := m.check(); err == nil || !strings.Contains(err.Error(), "is not there to sign new ones") {
		t.Errorf("after the end: %v", err)
	}
	if after := serials(m); after[FrontProxyClient] == before[FrontProxyClient] {
		t.Error("what can be renewed is not, because of what cannot")
	}
	if _, err := m.Certificate(APIServer); err != nil {
		t.Errorf("the old certificate is not there any more: %v", err)
	}
}
