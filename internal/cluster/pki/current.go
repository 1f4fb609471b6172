package pki

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

// Files returns where a leaf's certificate and key are.
func (m *Manager) Files(leaf string) (certFile, keyFile string) {
	return m.file(leaf, ".crt"), m.file(leaf, ".key")
}

// AuthorityFile returns where the certificates of an authority are.
func (m *Manager) AuthorityFile(authority string) string { return m.file(authority, ".crt") }

// Bundle is what to trust of an authority, in PEM.
func (m *Manager) Bundle(authority string) []byte {
	if a := m.state().authorities[authority]; a != nil {
		return a.pem
	}
	return nil
}

// Pool is what to trust of an authority. It is empty for one that does not exist. Whoever verifies asks for it each time.
func (m *Manager) Pool(authority string) *x509.CertPool {
	if a := m.state().authorities[authority]; a != nil {
		return a.pool
	}
	return x509.NewCertPool()
}

// Certificate is a leaf and its key.
func (m *Manager) Certificate(leaf string) (*tls.Certificate, error) {
	p := m.state().pairs[leaf]
	if p == nil {
		return nil, fmt.Errorf("there is no certificate %q", leaf)
	}
	return &p.tls, nil
}

// PEM is a leaf and its key, in PEM.
func (m *Manager) PEM(leaf string) (certificate, key []byte, err error) {
	p := m.state().pairs[leaf]
	if p == nil {
		return nil, nil, fmt.Errorf("there is no certificate %q", leaf)
	}
	return p.certPEM, p.keyPEM, nil
}

// AccountSigner is the key that service account tokens are signed with.
func (m *Manager) AccountSigner() crypto.Signer { return m.current.Load().accounts.signer }

// AccountKeys are the keys that service account tokens are verified with, the signer's among them.
func (m *Manager) AccountKeys() []crypto.PublicKey { return m.current.Load().accounts.publics }
