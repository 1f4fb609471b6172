package pki

import (
	"bytes"
	"crypto"
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
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// The authorities of a cluster, named by their files.
const (
	CA           = "ca"             // signs the certificates of the API server, of nodes and of users
	FrontProxyCA = "front-proxy-ca" // signs the certificates of front proxies, which say which user a request is from
	EtcdCA       = "etcd/ca"        // signs the certificates of etcd and its clients
)

var authorities = []string{CA, FrontProxyCA, EtcdCA}

// maker is the organization of the authorities that skiff made. It renews no others.
const maker = "skiff"

// commonName returns the common name that kubeadm gives an authority.
func commonName(authority string) string {
	switch authority {
	case CA:
		return "kubernetes"
	case EtcdCA:
		return "etcd-ca"
	}
	return authority
}

const (
	defaultAuthorityLife = 10 * 365 * 24 * time.Hour
	defaultLeafLife      = 365 * 24 * time.Hour
	// renewBefore is how long before its expiry a certificate is renewed, or a third of its lifetime if that is less.
	renewBefore = 30 * 24 * time.Hour
	// backdate is how long before now a certificate begins to be valid, or a tenth of its lifetime if that is less: clocks differ.
	backdate = 5 * time.Minute
)

// Authority signs certificates.
type Authority struct {
	cert    *x509.Certificate
	key     crypto.Signer       // nil if the key is kept elsewhere
	foreign bool                // not made by skiff, so not renewed by it
	certs   []*x509.Certificate // cert, then others that are still trusted
	pem     []byte              // certs
	pool    *x509.CertPool      // certs
}

// PEM returns the certificates to trust: the authority's, and those of earlier keys that have not expired.
func (a *Authority) PEM() []byte { return a.pem }

// NewAuthority returns a new authority that is in no file.
func NewAuthority(name string, now time.Time, life time.Duration) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	c, err := selfSign(name, key, nil, now, life)
	if err != nil {
		return nil, err
	}
	return newAuthority([]*x509.Certificate{c}, key)
}

func newAuthority(certs []*x509.Certificate, key crypto.Signer) (*Authority, error) {
	bundle, err := cert.EncodeCertificates(certs...)
	if err != nil {
		return nil, err
	}
	a := &Authority{cert: certs[0], key: key, certs: certs, pem: bundle, pool: x509.NewCertPool(), foreign: !ownMake(certs[0])}
	for _, c := range certs {
		a.pool.AddCert(c)
	}
	return a, nil
}

// Issue returns a new certificate and key that are in no file. They expire with the authority at the latest.
func (a *Authority) Issue(l Leaf, now time.Time, life time.Duration) (tls.Certificate, error) {
	certPEM, keyPEM, err := a.issue(l, now, life)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}

// authority reads an authority's files and makes those that are missing, cut short or about to expire.
func (l *reconciliation) authority(name string) (*Authority, error) {
	path := l.path(name)
	certs, whole, certErr := readCertificates(path + ".crt")
	key, keyErr := readKey(path + ".key")
	for _, err := range []error{certErr, keyErr} {
		if err != nil && !missingOrTorn(err) {
			return nil, err
		}
	}
	if len(certs) > 0 && (!ownMake(certs[0]) || errors.Is(keyErr, fs.ErrNotExist)) {
		return l.foreignAuthority(path, certs, key, keyErr)
	}
	var current *x509.Certificate
	if len(certs) > 0 && key != nil && belong(certs[0], key) {
		current = certs[0]
	}
	if current != nil && !l.now.Before(current.NotBefore) && l.now.Before(l.authorityEnds(current)) {
		a, err := newAuthority(certs, key)
		if err == nil && !whole {
			l.write(path+".crt", a.pem)
		}
		return a, err
	}
	if certErr == nil || keyErr == nil || errors.Is(certErr, errTorn) || errors.Is(keyErr, errTorn) {
		l.log.Info("renewing a certificate authority", "file", path+".crt", "why", whyAuthority(current, certErr, keyErr, l.now))
	}
	if key == nil {
		made, err := newKey()
		if err != nil {
			return nil, err
		}
		keyPEM, err := keyutil.MarshalPrivateKeyToPEM(made)
		if err != nil {
			return nil, err
		}
		key = made
		l.write(path+".key", keyPEM)
	}
	renewed, err := selfSign(name, key, current, l.now, l.authorityLife)
	if err != nil {
		return nil, err
	}
	certs = slices.DeleteFunc(certs, func(c *x509.Certificate) bool { return belong(c, key) || l.now.After(c.NotAfter) })
	a, err := newAuthority(append([]*x509.Certificate{renewed}, certs...), key)
	if err != nil {
		return nil, err
	}
	l.write(path+".crt", a.pem)
	return a, nil
}

// authorityEnds returns when an authority is renewed: early enough that no leaf gets a shorter lifetime.
func (l *reconciliation) authorityEnds(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-min(c.NotAfter.Sub(c.NotBefore)/3, max(l.leafLife, renewBefore)))
}

func whyAuthority(current *x509.Certificate, certErr, keyErr error, now time.Time) string {
	switch {
	case certErr != nil || keyErr != nil:
		return errors.Join(certErr, keyErr).Error()
	case current == nil:
		return "certificate and key do not belong together"
	}
	return whyTime(current, now)
}

// foreignAuthority returns an authority that somebody else put there, as it is, or why it cannot be used.
func (l *reconciliation) foreignAuthority(path string, certs []*x509.Certificate, key crypto.Signer, keyErr error) (*Authority, error) {
	c := certs[0]
	switch {
	case !c.IsCA:
		return nil, fmt.Errorf("%s.crt is not the certificate of an authority", path)
	case errors.Is(keyErr, errTorn):
		return nil, fmt.Errorf("%w; as skiff did not make %s.crt, put the key of that certificate there, or remove both files to have new ones made", keyErr, path)
	case key != nil && !belong(c, key):
		return nil, fmt.Errorf("%s.key is not the key of %s.crt; as skiff did not make the certificate, put the right key there, or remove both files to have new ones made", path, path)
	case l.now.Before(c.NotBefore) || l.now.After(c.NotAfter):
		return nil, fmt.Errorf("the authority in %s.crt cannot be used: %s. skiff cannot renew it: put another certificate and its key there, or remove both files to have new ones made",
			path, whyTime(c, l.now))
	}
	if !l.now.Before(renewAt(c)) {
		l.log.Warn("a certificate authority that skiff cannot renew ends soon", "file", path+".crt", "ends", c.NotAfter)
	}
	a, err := newAuthority(certs, key)
	if err == nil {
		a.foreign = true // also one that skiff made, if its key was moved elsewhere
	}
	return a, err
}

func ownMake(c *x509.Certificate) bool { return slices.Contains(c.Subject.Organization, maker) }

// selfSign returns a certificate of an authority. Made from the previous one of the same key, it can replace that one everywhere.
func selfSign(name string, key crypto.Signer, previous *x509.Certificate, now time.Time, life time.Duration) (*x509.Certificate, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: commonName(name), Organization: []string{maker}},
		IsCA:    true, BasicConstraintsValid: true,
		KeyUsage:  x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		NotBefore: now.Add(-min(backdate, life/10)), NotAfter: now.Add(life),
	}
	if previous != nil {
		template.RawSubject, template.SubjectKeyId = previous.RawSubject, previous.SubjectKeyId
		if previous.NotBefore.Before(template.NotBefore) {
			template.NotBefore = previous.NotBefore // a clock that is set back must not make it invalid
		}
	}
	der, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

const serialBits = 120

func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1)) // zero is not allowed
	return x509.CreateCertificate(rand.Reader, template, parent, public, key)
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}

// readCertificates returns the certificates in a file; whole is false if the file was cut short after them.
func readCertificates(path string) (certs []*x509.Certificate, whole bool, err error) {
	data, err := readPEM(path)
	if err != nil {
		return nil, false, err
	}
	certs, err = cert.ParseCertsPEM(data)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", path, err)
	}
	rest := data
	for block := new(pem.Block); block != nil; {
		block, rest = pem.Decode(rest)
	}
	return certs, !bytes.HasPrefix(bytes.TrimSpace(rest), []byte(pemBegin[:1])), nil
}

func readKey(path string) (crypto.Signer, error) {
	data, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	key, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; a key must be RSA or ECDSA and not encrypted", path, err)
	}
	return key.(crypto.Signer), nil
}

// belong reports whether a certificate is of a key.
func belong(c *x509.Certificate, key crypto.Signer) bool {
	return samePublicKey(c.PublicKey, key.Public())
}

func samePublicKey(a, b crypto.PublicKey) bool {
	x, err := x509.MarshalPKIXPublicKey(a)
	if err != nil {
		return false
	}
	y, err := x509.MarshalPKIXPublicKey(b)
	return err == nil && bytes.Equal(x, y)
}

// path returns the path of a name's files, without extension.
func (l *reconciliation) path(name string) string {
	return filepath.Join(l.dir, filepath.FromSlash(name))
}
