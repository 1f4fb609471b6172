// Package clientcert recognizes users by the client certificates of their connections: the subject's common name is the user, its
// organizations are the groups. The server's TLS configuration must ask for certificates without verifying them; that is done here, where
// an unknown certificate is no reason to drop the connection. A certificate is verified once and remembered for as long as it, its authorities
// and the trust in them last.
package clientcert

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/asn1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"skiff/internal/apiserver/authn"
)

const (
	// remembered is how many certificates are known to be good without verifying them again; each takes less than a kilobyte.
	remembered = 8192
	// refused is how many certificates are known to be bad, and refusedFor how long. They are kept apart from the good ones: anybody can
	// make them.
	refused    = 256
	refusedFor = 10 * time.Second
	// connected is of how many certificates of connections the fingerprints are known without hashing them again.
	connected = 256
)

// Authenticator recognizes users by their certificates.
type Authenticator struct{ *Verifier }

// New returns an authenticator of users whose certificates come from the authorities.
func New(cas CAs, now clock.PassiveClock) Authenticator {
	return Authenticator{NewVerifier(cas, now)}
}

// Authenticate returns whose certificate the request's connection has.
func (a Authenticator) Authenticate(r *http.Request) (*authn.User, error) {
	verified, err := a.Verify(r)
	if err != nil {
		leaf := r.TLS.PeerCertificates[0]
		return nil, fmt.Errorf("verifying certificate SN=%d, SKID=%s, AKID=%s failed: %w", leaf.SerialNumber, hexed(leaf.SubjectKeyId), hexed(leaf.AuthorityKeyId), err)
	}
	if verified == nil {
		return nil, nil
	}
	return verified.user, verified.userErr
}

// Verifier says whether the certificates of connections come from the authorities.
type Verifier struct {
	cas    CAs
	clock  clock.PassiveClock
	trust  atomic.Pointer[trust]
	prints *lru.Cache // fingerprints by certificates
}

// NewVerifier returns a verifier.
func NewVerifier(cas CAs, now clock.PassiveClock) *Verifier {
	return &Verifier{cas: cas, clock: now, prints: lru.New(connected)}
}

// trust is what was found against one bundle.
type trust struct {
	bundle    *Bundle
	good, bad *lru.Cache // verdicts by fingerprints
}

func (t *trust) find(key fingerprint) *verdict {
	for _, verdicts := range []*lru.Cache{t.good, t.bad} {
		if found, ok := verdicts.Get(key); ok {
			return found.(*verdict)
		}
	}
	return nil
}

func (t *trust) remember(key fingerprint, v *verdict) {
	if v.err != nil {
		t.bad.Add(key, v)
		t.good.Remove(key)
		return
	}
	t.good.Add(key, v)
}

// verdict is what was found, and for which time it holds.
type verdict struct {
	from, until time.Time
	verified    *Verified
	err         error
}

// Verified is a certificate that was found to be good.
type Verified struct {
	CommonName string
	user       *authn.User
	userErr    error
}

type fingerprint = [sha256.Size]byte

// Verify verifies the certificate of the request's connection. It returns nil and no error if there is none, or no authority to go by.
func (v *Verifier) Verify(r *http.Request) (*Verified, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	trust := v.trusted()
	if trust == nil {
		return nil, nil
	}
	now := v.clock.Now()
	key := v.fingerprint(r.TLS.PeerCertificates)
	if known := trust.find(key); known != nil && !now.Before(known.from) && !now.After(known.until) {
		return known.verified, known.err
	}
	fresh := verify(r.TLS.PeerCertificates, trust.bundle, now)
	trust.remember(key, fresh)
	return fresh.verified, fresh.err
}

// trusted forgets all verdicts when the authorities have changed.
func (v *Verifier) trusted() *trust {
	bundle := v.cas()
	if bundle == nil {
		return nil
	}
	t := v.trust.Load()
	if t == nil || t.bundle != bundle {
		t = &trust{bundle: bundle, good: lru.New(remembered), bad: lru.New(refused)}
		v.trust.Store(t)
	}
	return t
}

// fingerprint remembers that of a certificate that comes alone, as most do: the requests of a connection all show the same one.
func (v *Verifier) fingerprint(certificates []*x509.Certificate) fingerprint {
	if len(certificates) != 1 {
		return fingerprintOf(certificates)
	}
	if known, ok := v.prints.Get(certificates[0]); ok {
		return known.(fingerprint)
	}
	found := fingerprintOf(certificates)
	v.prints.Add(certificates[0], found)
	return found
}

// fingerprintOf covers the intermediate certificates too: without them the first one may not lead to an authority.
func fingerprintOf(certificates []*x509.Certificate) fingerprint {
	if len(certificates) == 1 {
		return sha256.Sum256(certificates[0].Raw)
	}
	h := sha256.New()
	for _, c := range certificates {
		h.Write(c.Raw) // DER says how long it is
	}
	return fingerprint(h.Sum(nil))
}

// verify finds a verdict that holds while every certificate of the chain is valid.
func verify(certificates []*x509.Certificate, bundle *Bundle, now time.Time) *verdict {
	leaf := certificates[0]
	options := x509.VerifyOptions{Roots: bundle.Pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if len(certificates) > 1 {
		options.Intermediates = x509.NewCertPool()
		for _, c := range certificates[1:] {
			options.Intermediates.AddCert(c)
		}
	}
	chains, err := leaf.Verify(options)
	if err != nil {
		return &verdict{from: now, until: now.Add(refusedFor), err: errors.New(err.Error())} // without the certificates the error holds
	}
	v := &verdict{from: leaf.NotBefore, until: leaf.NotAfter, verified: &Verified{CommonName: leaf.Subject.CommonName}}
	for _, c := range chains[0] {
		if c.NotBefore.After(v.from) {
			v.from = c.NotBefore
		}
		if c.NotAfter.Before(v.until) {
			v.until = c.NotAfter
		}
	}
	v.verified.user, v.verified.userErr = userOf(leaf)
	return v
}

func hexed(id []byte) string {
	return strings.ReplaceAll(fmt.Sprintf("% X", id), " ", ":")
}

// userOf returns nil if the certificate names nobody.
func userOf(c *x509.Certificate) (*authn.User, error) {
	if c.Subject.CommonName == "" {
		return nil, nil
	}
	uid, err := uidOf(c)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(c.Raw)
	return &authn.User{Username: c.Subject.CommonName, UID: uid, Groups: c.Subject.Organization,
		Extra: map[string]authenticationv1.ExtraValue{authn.ExtraCredentialID: {"X509SHA256=" + hex.EncodeToString(sum[:])}}}, nil
}

var uidOID = asn1.X509UID()

func uidOf(c *x509.Certificate) (string, error) {
	var uids []string
	for _, name := range c.Subject.Names {
		if !name.Type.Equal(uidOID) {
			continue
		}
		uid, ok := name.Value.(string)
		if !ok {
			return "", errors.New("unable to parse UID into a string")
		}
		uids = append(uids, uid)
	}
	switch {
	case len(uids) == 0:
		return "", nil
	case len(uids) > 1:
		return "", fmt.Errorf("expected 1 UID, but found multiple: %v", uids)
	case uids[0] == "":
		return "", errors.New("UID cannot be an empty string")
	}
	return uids[0], nil
}
