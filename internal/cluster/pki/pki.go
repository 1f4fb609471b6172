// Package pki makes the certificates of a cluster and keeps them in files.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	servingLife   = 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is replaced at start.
	renewBefore = 30 * 24 * time.Hour
	// clockSkew is how far clocks may differ.
	clockSkew = 5 * time.Minute
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// PEM is the authority's certificate.
func (a *Authority) PEM() []byte { return a.pem }

// LoadAuthority reads ca.crt and ca.key from a directory, or makes them.
func LoadAuthority(dir string, now time.Time) (*Authority, error) {
	certFile, keyFile := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	a, err := readAuthority(certFile, keyFile)
	if err == nil && now.Before(a.cert.NotAfter.Add(-renewBefore)) {
		return a, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the cluster's authority: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "skiff-ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(authorityLife)}
	certPEM, err := sign(template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	if err := write(dir, certFile, certPEM, keyFile, key); err != nil {
		return nil, err
	}
	return readAuthority(certFile, keyFile)
}

func readAuthority(certFile, keyFile string) (*Authority, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	certPEM, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s is not an ECDSA key", keyFile)
	}
	return &Authority{cert: pair.Leaf, key: key, pem: certPEM}, nil
}

// Serving returns the certificate a server shows for the given names and addresses, from NAME.crt and NAME.key in a directory, making
// it if it is missing, ends soon or lacks one of them.
func (a *Authority) Serving(dir, name string, hosts []string, now time.Time) (tls.Certificate, error) {
	certFile, keyFile := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if pair, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil && a.fits(pair.Leaf, hosts, now) {
		return pair, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(servingLife)}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	certPEM, err := sign(template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	if err := write(dir, certFile, certPEM, keyFile, key); err != nil {
		return tls.Certificate{}, err
	}
	return tls.LoadX509KeyPair(certFile, keyFile)
}

func (a *Authority) fits(cert *x509.Certificate, hosts []string, now time.Time) bool {
	return cert.CheckSignatureFrom(a.cert) == nil && now.Before(cert.NotAfter.Add(-renewBefore)) && now.After(cert.NotBefore) &&
		!slices.ContainsFunc(hosts, func(h string) bool { return cert.VerifyHostname(h) != nil })
}

func sign(template, parent *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func write(dir, certFile string, certPEM []byte, keyFile string, key *ecdsa.PrivateKey) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	// The certificate comes last: a pair that was half written is made anew.
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(certFile, certPEM, 0o600)
}
