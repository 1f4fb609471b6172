package authn_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/authntest"
	"skiff/internal/apiserver/authn/clientcert"
	"skiff/internal/apiserver/authn/requestheader"
)

func bundle(t *testing.T, cas ...*authntest.CA) *clientcert.Bundle {
	t.Helper()
	var pem []byte
	for _, ca := range cas {
		pem = append(pem, ca.PEM()...)
	}
	b, err := clientcert.NewBundle(pem)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func certUser(c *x509.Certificate) authn.User {
	sum := sha256.Sum256(c.Raw)
	return authn.User{Username: c.Subject.CommonName, Groups: c.Subject.Organization,
		Extra: map[string]authenticationv1.ExtraValue{authn.ExtraCredentialID: {"X509SHA256=" + hex.EncodeToString(sum[:])}}}
}

func send(certificates ...*x509.Certificate) func() *http.Request {
	return func() *http.Request { return authntest.WithCertificates(certificates...) }
}

// tampered returns the certificate with one byte of what was signed, or of the signature, changed.
func tampered(t *testing.T, c *x509.Certificate, of func(*x509.Certificate) []byte) *x509.Certificate {
	t.Helper()
	changed, err := x509.ParseCertificate(append([]byte(nil), c.Raw...))
	if err != nil {
		t.Fatal(err)
	}
	part := of(changed)
	part[len(part)-1] ^= 1
	return changed
}

func clientCert(t *testing.T) *authntest.Subject {
	clock := newClock()
	ca, other := authntest.NewCA(t, authntest.Valid(start, "cluster")), authntest.NewCA(t, authntest.Valid(start, "cluster"))
	good := ca.Issue(t, authntest.Valid(start, "anna", "admins", "people"))
	trusted := bundle(t, ca)
	late := authntest.Valid(start.Add(24*time.Hour), "anna")
	serving := authntest.Valid(start, "anna")
	serving.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return &authntest.Subject{
		Authenticator: clientcert.New(func() *clientcert.Bundle { return trusted }, clock), Good: send(good), User: certUser(good),
		Bad: map[authntest.Hazard][]authntest.Attack{
			authntest.WrongKey: {
				{Name: "another CA of the same name", Request: send(other.Issue(t, authntest.Valid(start, "anna", "admins"))), Error: "failed: x509: certificate signed by unknown authority"},
				{Name: "a serving certificate", Request: send(ca.Issue(t, serving)), Error: "certificate specifies an incompatible key usage"},
				{Name: "the CA's successor", Before: func() { trusted = bundle(t, other) }, Error: "certificate signed by unknown authority"},
			},
			authntest.Expired: {
				{Name: "a second later", Before: func() { clock.SetTime(good.NotAfter.Add(time.Second)) }, Error: "certificate has expired or is not yet valid"},
			},
			authntest.NotYetValid: {
				{Name: "issued for tomorrow", Request: send(ca.Issue(t, late)), Error: "certificate has expired or is not yet valid"},
				{Name: "the clock went back", Before: func() { clock.SetTime(good.NotBefore.Add(-time.Second)) }, Error: "certificate has expired or is not yet valid"},
			},
			authntest.Tampered: {
				{Name: "the signature", Request: send(tampered(t, good, func(c *x509.Certificate) []byte { return c.Signature })), Error: "certificate signed by unknown authority"},
				{Name: "the content", Request: send(tampered(t, good, func(c *x509.Certificate) []byte { return c.RawTBSCertificate })), Error: "certificate signed by unknown authority"},
			},
			authntest.Empty: {
				{Name: "no TLS", Request: bare},
				{Name: "no certificate", Request: send()},
				{Name: "no common name", Request: send(ca.Issue(t, authntest.Valid(start, "", "admins")))},
			},
			authntest.Revoked: {{Name: "no CA is trusted any more", Before: func() { trusted = nil }}},
		},
		Exempt: map[authntest.Hazard]string{authntest.WrongAudience: "certificates have none", authntest.Oversized: "TLS bounds the handshake"},
	}
}

func intermediateCert(t *testing.T) *authntest.Subject {
	clock := newClock()
	root := authntest.NewCA(t, authntest.Valid(start, "root"))
	short := authntest.Valid(start, "intermediate")
	short.NotAfter = start.Add(time.Minute)
	middle := root.Intermediate(t, short)
	good := middle.Issue(t, authntest.Valid(start, "anna"))
	trusted := bundle(t, root)
	expired := "certificate has expired or is not yet valid"
	return &authntest.Subject{
		Authenticator: clientcert.New(func() *clientcert.Bundle { return trusted }, clock), Good: send(good, middle.Certificate), User: certUser(good),
		Bad: map[authntest.Hazard][]authntest.Attack{
			authntest.WrongKey: {{Name: "without the intermediate", Request: send(good), Error: "certificate signed by unknown authority"}},
			authntest.Expired:  {{Name: "the intermediate only", Before: func() { clock.SetTime(start.Add(2 * time.Minute)) }, Error: expired}},
			authntest.Revoked:  {{Name: "another root", Before: func() { trusted = bundle(t, authntest.NewCA(t, authntest.Valid(start, "root"))) }, Error: "certificate signed by unknown authority"}},
		},
		Exempt: map[authntest.Hazard]string{authntest.WrongAudience: "certificates have none", authntest.Oversized: "TLS bounds the handshake",
			authntest.NotYetValid: "as without intermediate", authntest.Tampered: "as without intermediate", authntest.Empty: "as without intermediate"},
	}
}

func requestHeader(t *testing.T) *authntest.Subject {
	clock := newClock()
	ca, other := authntest.NewCA(t, authntest.Valid(start, "front-proxy")), authntest.NewCA(t, authntest.Valid(start, "cluster"))
	proxy := ca.Issue(t, authntest.Valid(start, "front-proxy-client"))
	trusted := bundle(t, ca)
	with := func(c *x509.Certificate, user string) func() *http.Request {
		return func() *http.Request {
			r := authntest.WithCertificates(c)
			r.Header = http.Header{"X-Remote-User": {user}, "X-Remote-Uid": {"7"}, "X-Remote-Group": {"admins", "people"}, "X-Remote-Extra-Example.com%2fscope": {"a", "b"}}
			return r
		}
	}
	unknown := "x509: certificate signed by unknown authority"
	return &authntest.Subject{
		Authenticator: requestheader.New(requestheader.Standard, func() *clientcert.Bundle { return trusted }, []string{"front-proxy-client"}, clock),
		Good:          with(proxy, "anna"),
		User: authn.User{Username: "anna", UID: "7", Groups: []string{"admins", "people"},
			Extra: map[string]authenticationv1.ExtraValue{"example.com/scope": {"a", "b"}}},
		Bad: map[authntest.Hazard][]authntest.Attack{
			authntest.WrongKey: {
				{Name: "a user's certificate", Request: with(other.Issue(t, authntest.Valid(start, "front-proxy-client")), "anna"), Error: unknown},
				{Name: "a name that is not allowed", Request: with(ca.Issue(t, authntest.Valid(start, "somebody")), "anna"), Error: "x509: subject with cn=somebody is not in the allowed list"},
			},
			authntest.Expired:     {{Name: "the proxy's certificate", Before: func() { clock.SetTime(start.Add(2 * time.Hour)) }, Error: "certificate has expired or is not yet valid"}},
			authntest.NotYetValid: {{Name: "the proxy's certificate", Before: func() { clock.SetTime(start.Add(-2 * time.Hour)) }, Error: "certificate has expired or is not yet valid"}},
			authntest.Tampered:    {{Name: "the signature", Request: with(tampered(t, proxy, func(c *x509.Certificate) []byte { return c.Signature }), "anna"), Error: unknown}},
			authntest.Empty: {
				{Name: "no user", Request: with(proxy, "")},
				{Name: "no certificate", Request: func() *http.Request {
					r := with(proxy, "anna")()
					r.TLS = nil
					return r
				}},
			},
			authntest.Revoked: {{Name: "another CA", Before: func() { trusted = bundle(t, other) }, Error: unknown}},
		},
		Exempt: map[authntest.Hazard]string{authntest.WrongAudience: "certificates have none", authntest.Oversized: "the server bounds the headers"},
	}
}
