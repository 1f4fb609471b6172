package pki

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

// Files returns the paths of a leaf's certificate and key.
func (m *Manager) Files(leaf string) (certFile, keyFile string) {
	return m.file(leaf, ".crt"), m.file(leaf, ".key")
}

// AuthorityFile returns the path of an authority's certificates.
func (m *Manager) AuthorityFile(authority string) string { return m.file(authority, ".crt") }

// Bundle returns the certificates of an authority to trust, in PEM.
func (m *Manager) Bundle(authority string) []byte {
	if a := m.state().authorities[authority]; a != nil {
		return a.pem
	}
	return nil
}

// Pool returns the certificates of an authority to trust; empty for one that does not exist. It must be called for each verification, as it follows renewals.
func (m *Manager) Pool(authority string) *x509.CertPool {
	if a := m.state().authorities[authority]; a != nil {
		return a.pool
	}
	return x509.NewCertPool()
}

// Certificate returns the current certificate of a leaf and its key.
func (m *Manager) Certificate(leaf string) (*tls.Certificate, error) {
	p := m.state().pairs[leaf]
	if p == nil {
		return nil, fmt.Errorf("there is no certificate %q", leaf)
	}
	return &p.tls, nil
}

// PEM returns the current certificate of a leaf and its key, in PEM.
func (m *Manager) PEM(leaf string) (certificate, key []byte, err error) {
	p := m.state().pairs[leaf]
	if p == nil {
		return nil, nil, fmt.Errorf("there is no certificate %q", leaf)
	}
	return p.certPEM, p.keyPEM, nil
}

// AccountSigner returns the key that service account tokens are signed with.
func (m *Manager) AccountSigner() crypto.Signer { return m.current.Load().accounts.signer }

// AccountKeys returns the keys that service account tokens are verified with, the signer's among them.
func (m *Manager) AccountKeys() []crypto.PublicKey { return m.current.Load().accounts.publics }
