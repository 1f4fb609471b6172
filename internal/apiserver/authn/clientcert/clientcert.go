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
	// maxValid is how many valid certificates are cached; each takes less than a kilobyte.
	maxValid = 8192
	// maxInvalid is how many invalid certificates are cached, and invalidTTL for how long. They have a cache of their own, so that they
	// cannot evict valid ones: anybody can make them.
	maxInvalid = 256
	invalidTTL = 10 * time.Second
	// maxFingerprints is how many fingerprints of connections' certificates are cached, to avoid hashing for every request.
	maxFingerprints = 256
)

// Authenticator authenticates users by their client certificates.
type Authenticator struct{ *Verifier }

// New returns an authenticator of users with certificates issued by the CAs.
func New(cas CAs, now clock.PassiveClock) Authenticator {
	return Authenticator{NewVerifier(cas, now)}
}

// Authenticate returns the user of the connection's client certificate.
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

// Verifier verifies that client certificates are issued by the CAs.
type Verifier struct {
	cas    CAs
	clock  clock.PassiveClock
	trust  atomic.Pointer[trust]
	prints *lru.Cache // fingerprint by *x509.Certificate
}

// NewVerifier returns a verifier.
func NewVerifier(cas CAs, now clock.PassiveClock) *Verifier {
	return &Verifier{cas: cas, clock: now, prints: lru.New(maxFingerprints)}
}

// trust caches the results of verifying certificates against one bundle.
type trust struct {
	bundle         *Bundle
	valid, invalid *lru.Cache // *result by fingerprint
}

func (t *trust) find(key fingerprint) *result {
	for _, results := range []*lru.Cache{t.valid, t.invalid} {
		if found, ok := results.Get(key); ok {
			return found.(*result)
		}
	}
	return nil
}

func (t *trust) store(key fingerprint, v *result) {
	if v.err != nil {
		t.invalid.Add(key, v)
		t.valid.Remove(key)
		return
	}
	t.valid.Add(key, v)
}

// result is the outcome of verifying a certificate, and the time for which it holds.
type result struct {
	from, until time.Time
	verified    *Verified
	err         error
}

// Verified is a client certificate that was verified.
type Verified struct {
	CommonName string
	user       *authn.User
	userErr    error
}

type fingerprint = [sha256.Size]byte

// Verify verifies the client certificate of the request's connection. It returns nil and no error if there is no certificate or no trusted CA.
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
	trust.store(key, fresh)
	return fresh.verified, fresh.err
}

// trusted returns the cache for the current CAs, an empty one if they have changed; nil if there are no CAs.
func (v *Verifier) trusted() *trust {
	bundle := v.cas()
	if bundle == nil {
		return nil
	}
	t := v.trust.Load()
	if t == nil || t.bundle != bundle {
		t = &trust{bundle: bundle, valid: lru.New(maxValid), invalid: lru.New(maxInvalid)}
		v.trust.Store(t)
	}
	return t
}

// fingerprint returns the fingerprint of the certificates, cached for a single certificate, as most are: all requests of a connection have the same one.
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

// fingerprintOf covers the intermediate certificates too: without them the first may not chain to a CA.
func fingerprintOf(certificates []*x509.Certificate) fingerprint {
	if len(certificates) == 1 {
		return sha256.Sum256(certificates[0].Raw)
	}
	h := sha256.New()
	for _, c := range certificates {
		h.Write(c.Raw) // DER contains its length, so that the concatenation is unambiguous
	}
	return fingerprint(h.Sum(nil))
}

// verify returns a result that holds while every certificate of the chain is valid.
func verify(certificates []*x509.Certificate, bundle *Bundle, now time.Time) *result {
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
		return &result{from: now, until: now.Add(invalidTTL), err: errors.New(err.Error())} // drops the certificates that the error refers to
	}
	v := &result{from: leaf.NotBefore, until: leaf.NotAfter, verified: &Verified{CommonName: leaf.Subject.CommonName}}
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

// userOf returns the user of a certificate, nil if it has no common name.
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
