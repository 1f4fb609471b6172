package identity_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// authority is a certificate authority.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  crypto.Signer
}

// clusterCA returns a CA of the cluster by the name of its files.
func clusterCA(t *testing.T, dataDir, name string) *authority {
	t.Helper()
	path := filepath.Join(dataDir, "pki", name)
	pair, err := tls.LoadX509KeyPair(path+".crt", path+".key")
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, pair.Leaf, pair.PrivateKey.(crypto.Signer)}
}

// impostor returns an untrusted CA with the same name.
func (a *authority) impostor() *authority {
	a.t.Helper()
	fake := &authority{t: a.t, key: newKey(a.t)}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: a.cert.Subject, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, SubjectKeyId: a.cert.SubjectKeyId}
	fake.cert = sign(a.t, template, template, fake.key.Public(), fake.key)
	return fake
}

// certify returns a client certificate that is valid for a duration from now on; a negative duration gives an expired one.
func (a *authority) certify(user string, life time.Duration, groups ...string) tls.Certificate {
	a.t.Helper()
	key, from, until := newKey(a.t), time.Now().Add(-time.Minute), time.Now().Add(life)
	if life < 0 {
		from = until.Add(-time.Hour)
	}
	cert := sign(a.t, &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: user, Organization: groups},
		NotBefore: from, NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, a.cert, key.Public(), a.key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, template, parent *x509.Certificate, public crypto.PublicKey, by crypto.Signer) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// withCertificate returns a configuration for the same server with nothing but a client certificate.
func withCertificate(t *testing.T, config *rest.Config, pair tls.Certificate) *rest.Config {
	t.Helper()
	key, err := x509.MarshalECPrivateKey(pair.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	c := withToken(config, "")
	for _, der := range pair.Certificate {
		c.CertData = append(c.CertData, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	c.KeyData = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})
	return c
}

// showing returns an HTTP client that presents a certificate whether or not the server trusts its CA.
func showing(t *testing.T, config *rest.Config, pair *tls.Certificate) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(config.CAData) {
		t.Fatal("no authority to trust")
	}
	settings := &tls.Config{RootCAs: pool}
	if pair != nil {
		settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: settings, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
