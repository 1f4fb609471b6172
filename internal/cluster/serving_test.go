package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skiff/internal/apiserver"
)

// writePair writes a certificate for some names, signed by itself, and returns it.
func writePair(t *testing.T, certFile, keyFile string, names ...string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := errors.Join(os.WriteFile(certFile, cert, 0o600), os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bytes}), 0o600)); err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// hello connects and tells what came of it.
func hello(t *testing.T, s *Server, config *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	config.InsecureSkipVerify = true
	conn, err := (&tls.Dialer{Config: config, NetDialer: &net.Dialer{Timeout: 10 * time.Second}}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.URL(), "https://"))
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState(), nil
}

func TestServingTLS(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	main := writePair(t, file("main.crt"), file("main.key"), "main.example.com")
	foo := writePair(t, file("foo.crt"), file("foo.key"), "foo.example.com", "shared.example.com")
	wild := writePair(t, file("wild.crt"), file("wild.key"), "unused.example.com")
	s, err := Start(t.Context(), Config{DataDir: filepath.Join(dir, "data"), Port: freePort(t), Log: quiet(), TLSCertFile: file("main.crt"), TLSKeyFile: file("main.key"),
		Serving: ServingConfig{TLSMinVersion: "VersionTLS12", TLSCipherSuites: []string{"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}, TLSCurves: []int32{int32(tls.CurveP384)},
			NamedCertificates: []NamedCertificate{{CertFile: file("foo.crt"), KeyFile: file("foo.key")},
				{CertFile: file("wild.crt"), KeyFile: file("wild.key"), Names: []string{"*.wild.example.com", "shared.example.com"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	for name, want := range map[string]*x509.Certificate{
		"": main, "main.example.com": main, "other.example.com": main, "unused.example.com": main, "foo.example.com": foo, "FOO.example.com": foo,
		"a.wild.example.com": wild, "b.a.wild.example.com": main, "wild.example.com": main, "shared.example.com": wild,
	} {
		state, err := hello(t, s, &tls.Config{ServerName: name, MaxVersion: tls.VersionTLS12})
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if !state.PeerCertificates[0].Equal(want) {
			t.Errorf("%q is shown a certificate for %s", name, state.PeerCertificates[0].DNSNames)
		}
		if state.CipherSuite != tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 || state.CurveID != tls.CurveP384 {
			t.Errorf("%q is spoken to with %s and %s", name, tls.CipherSuiteName(state.CipherSuite), state.CurveID)
		}
	}
	if _, err := hello(t, s, &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}); err == nil {
		t.Error("a cipher suite that was not named is used")
	}
	if _, err := hello(t, s, &tls.Config{CurvePreferences: []tls.CurveID{tls.X25519}}); err == nil {
		t.Error("a curve that was not named is used")
	}
}

func TestServingMinVersion(t *testing.T) {
	s, err := Start(t.Context(), Config{DataDir: t.TempDir(), Port: freePort(t), Log: quiet(), Serving: ServingConfig{TLSMinVersion: "VersionTLS13"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	if _, err := hello(t, s, &tls.Config{MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 is spoken")
	}
	if _, err := hello(t, s, &tls.Config{}); err != nil {
		t.Error(err)
	}
}

// Certificates in files are replaced under a running server.
func TestCertificateFiles(t *testing.T) {
	certFile, keyFile := filepath.Join(t.TempDir(), "crt"), filepath.Join(t.TempDir(), "key")
	first := writePair(t, certFile, keyFile, "first")
	files, err := openCertificateFiles(certFile, keyFile, quiet())
	if err != nil {
		t.Fatal(err)
	}
	is := func(want *x509.Certificate, when string) {
		t.Helper()
		if got := files.current().Leaf; !got.Equal(want) {
			t.Errorf("%s: %s", when, got.Subject)
		}
	}
	is(first, "at first")
	second := writePair(t, certFile, keyFile, "second")
	is(first, "a moment later")
	files.readAt = time.Now().Add(-rereadPeriod)
	is(second, "a minute later")
	if err := os.WriteFile(certFile, []byte("half of a certif"), 0o600); err != nil {
		t.Fatal(err)
	}
	files.readAt = time.Now().Add(-rereadPeriod)
	is(second, "with a file that is being written")
	if _, err := openCertificateFiles(certFile, keyFile, quiet()); err == nil {
		t.Error("nothing is wrong with half of a certificate")
	}
}

func TestParseNamedCertificate(t *testing.T) {
	for _, s := range []string{"a.crt,a.key", "a.crt,a.key:*.a.com,a.com"} {
		n, err := ParseNamedCertificate(s)
		if err != nil || n.String() != s || n.CertFile != "a.crt" || n.KeyFile != "a.key" || len(n.Names) != strings.Count(s, "a.com") {
			t.Errorf("%s: %+v, %v", s, n, err)
		}
	}
	for _, s := range []string{"", "a", "a,", ",a", "a,b,c", "a,b:", "a,b:x,"} {
		if n, err := ParseNamedCertificate(s); err == nil {
			t.Errorf("%q is %+v", s, n)
		}
	}
}

// The API server shows kubelets what it was given, and trusts whom it was told to, as long as files stay as they are with one pool.
func TestKubeletTLS(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	mine := writePair(t, certFile, keyFile, "mine")
	s, err := Start(t.Context(), Config{DataDir: filepath.Join(dir, "data"), Port: freePort(t), Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	get := func(c KubeletClientConfig) *tls.Config {
		t.Helper()
		s.config.Kubelets = c
		ask, err := s.kubeletTLS()
		if err != nil {
			t.Fatal(err)
		}
		config, err := ask()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ask()
		if err != nil || again.RootCAs != config.RootCAs {
			t.Errorf("asked twice: other authorities, %v", err)
		}
		return config
	}
	trusts := func(c *tls.Config) bool {
		_, err := mine.Verify(x509.VerifyOptions{Roots: c.RootCAs, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return err == nil
	}
	for _, test := range []struct {
		KubeletClientConfig
		shows, trusts bool
	}{
		{}, {KubeletClientConfig{CertFile: certFile, KeyFile: keyFile}, true, false}, {KubeletClientConfig{CAFile: certFile}, false, true},
		{KubeletClientConfig{CertFile: certFile, KeyFile: keyFile, CAFile: certFile}, true, true},
	} {
		c := get(test.KubeletClientConfig)
		if shown := c.Certificates[0].Leaf; shown.Equal(mine) != test.shows || trusts(c) != test.trusts {
			t.Errorf("%+v shows %s, trusts %v", test.KubeletClientConfig, shown.Subject, trusts(c))
		}
	}
	for _, c := range []KubeletClientConfig{{CertFile: "/none", KeyFile: "/none"}, {CAFile: "/none"}, {CAFile: keyFile}} {
		s.config.Kubelets = c
		if _, err := s.kubeletTLS(); err == nil {
			t.Errorf("%+v will do", c)
		}
	}
}

// A server that is to end says so to load balancers first, while it goes on.
func TestShutdownDelay(t *testing.T) {
	const delay = time.Second
	s, err := Start(t.Context(), Config{DataDir: t.TempDir(), Port: freePort(t), Log: quiet(), Serving: ServingConfig{ShutdownDelay: delay}})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	ask := func(path string) int {
		response, err := client.Get(s.URL() + path)
		if err != nil {
			return 0
		}
		response.Body.Close()
		return response.StatusCode
	}
	if ready, live := ask("/readyz"), ask("/livez"); ready != 200 || live != 200 {
		t.Fatalf("at first: %d, %d", ready, live)
	}
	began, stopped := time.Now(), make(chan time.Duration)
	go func() {
		s.Stop()
		stopped <- time.Since(began)
	}()
	for ask("/readyz") == 200 && time.Since(began) < delay/2 {
		time.Sleep(5 * time.Millisecond)
	}
	if ready, live := ask("/readyz"), ask("/livez"); ready != 500 || live != 200 {
		t.Errorf("while it is to end: %d, %d", ready, live)
	}
	if took := <-stopped; took < delay {
		t.Errorf("it ended after %v", took)
	}
	if live := ask("/livez"); live != 0 {
		t.Errorf("after its end: %d", live)
	}
}

func TestServingRefuses(t *testing.T) {
	for why, c := range map[string]Config{
		`unknown tls version "TLS13"`:                 {Serving: ServingConfig{TLSMinVersion: "TLS13"}},
		"cipher suite TLS_NONE not supported":         {Serving: ServingConfig{TLSCipherSuites: []string{"TLS_NONE"}}},
		"--tls-curve-preferences":                     {Serving: ServingConfig{TLSCurves: []int32{0}}},
		"--http2-max-streams-per-connection":          {Serving: ServingConfig{MaxStreams: -1}},
		"--max-connections-per-address":               {Serving: ServingConfig{MaxConnectionsPerAddress: -1}},
		"--min-request-timeout can not be negative":   {Serving: ServingConfig{MinRequestTimeout: -1}},
		"--shutdown-delay-duration":                   {Serving: ServingConfig{ShutdownDelay: -1}},
		"--goaway-chance":                             {Serving: ServingConfig{Front: apiserver.FrontOptions{GoAwayChance: 1}}},
		"--kubelet-client-certificate":                {Kubelets: KubeletClientConfig{CertFile: "x"}},
		`"Postbox" is none of InternalIP, ExternalIP`: {Kubelets: KubeletClientConfig{AddressTypes: []string{"Postbox"}}},
	} {
		if err := c.Complete(); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%+v: %v, want %q", c, err, why)
		}
	}
	if _, err := Start(t.Context(), Config{DataDir: t.TempDir(), Port: freePort(t), Log: quiet(), Serving: ServingConfig{NamedCertificates: []NamedCertificate{{CertFile: "/none", KeyFile: "/none"}}}}); err == nil ||
		!strings.Contains(err.Error(), "--tls-sni-cert-key") {
		t.Error(err)
	}
}
