package authntest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"testing"
	"time"
)

// CA is a certificate authority.
type CA struct {
	Certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewCA returns a new self-signed CA with the validity of the template.
func NewCA(t testing.TB, template x509.Certificate) *CA {
	t.Helper()
	return newCA(t, template, nil)
}

// Intermediate returns a CA whose certificate is signed by ca.
func (ca *CA) Intermediate(t testing.TB, template x509.Certificate) *CA {
	t.Helper()
	return newCA(t, template, ca)
}

func newCA(t testing.TB, template x509.Certificate, parent *CA) *CA {
	t.Helper()
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	key := NewKey(t, elliptic.P256())
	ca := &CA{key: key}
	if parent == nil {
		parent = &CA{&template, key}
	}
	ca.Certificate = parent.sign(t, template, key)
	return ca
}

// Issue returns a certificate with the template's extended key usage, client authentication if it has none.
func (ca *CA) Issue(t testing.TB, template x509.Certificate) *x509.Certificate {
	t.Helper()
	if template.ExtKeyUsage == nil {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	return ca.sign(t, template, NewKey(t, elliptic.P256()))
}

func (ca *CA) sign(t testing.TB, template x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, &template, ca.Certificate, &key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// PEM returns the CA's certificate in PEM.
func (ca *CA) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Certificate.Raw})
}

// NewKey returns a new private key.
func NewKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Valid returns a template for a certificate that is valid from an hour before to an hour after now.
func Valid(now time.Time, commonName string, organizations ...string) x509.Certificate {
	return x509.Certificate{Subject: pkix.Name{CommonName: commonName, Organization: organizations}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}
}

// WithCertificates returns a request over a TLS connection with these client certificates.
func WithCertificates(certificates ...*x509.Certificate) *http.Request {
	r, err := http.NewRequest(http.MethodGet, "https://server/api", nil)
	if err != nil {
		panic(err)
	}
	r.TLS = &tls.ConnectionState{PeerCertificates: certificates}
	return r
}
