package config_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/authntest"
	"skiff/internal/apiserver/authn/config"
	"skiff/internal/apiserver/authn/requestheader"
	"skiff/internal/apiserver/objects/objectstest"
)

var start = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// fixture is a server with everything enabled, from files.
type fixture struct {
	dir                string
	options            config.Options
	store              *objectstest.Store
	cluster, frontends *authntest.CA
	log                *bytes.Buffer
}

func (w *fixture) write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func keyPEM(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func publicPEM(t testing.TB, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	w := &fixture{dir: t.TempDir(), store: objectstest.New(), cluster: authntest.NewCA(t, authntest.Valid(start, "cluster")),
		frontends: authntest.NewCA(t, authntest.Valid(start, "front-proxy")), log: &bytes.Buffer{}, options: config.Default()}
	key := authntest.NewKey(t, elliptic.P256())
	o := &w.options
	o.ClientCAFile = w.write(t, "ca.crt", w.cluster.PEM())
	o.RequestHeaderClientCAFile = w.write(t, "front-proxy-ca.crt", w.frontends.PEM())
	o.RequestHeader, o.RequestHeaderAllowedNames = requestheader.Standard, []string{"front-proxy-client"}
	o.TokenAuthFile = w.write(t, "tokens.csv", []byte("sesame-1,anna,7,admins\n"))
	o.EnableBootstrapTokenAuth = true
	o.ServiceAccountIssuers = []string{"https://issuer.example", "https://old.example"}
	o.ServiceAccountSigningKeyFile = w.write(t, "sa.key", keyPEM(t, key))
	o.ServiceAccountKeyFiles = []string{w.write(t, "sa.pub", publicPEM(t, key)), w.write(t, "old.pub", publicPEM(t, authntest.NewKey(t, elliptic.P384())))}
	o.ExternalAddress = "10.0.0.1:6443"
	o.Clock, o.Log = clocktesting.NewFakePassiveClock(start), slog.New(slog.NewTextHandler(w.log, nil))
	w.store.Put(corev1.Resource("serviceaccounts"), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "robot", UID: "account-uid"}})
	w.store.Put(corev1.Resource("secrets"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abc123"}, Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{"token-id": []byte("abc123"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true")}})
	return w
}

func (w *fixture) build(t testing.TB) *config.Authentication {
	t.Helper()
	a, err := config.New(w.options, w.store)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func accountToken(t testing.TB, a *config.Authentication, audiences ...string) string {
	t.Helper()
	answer, err := a.Issuer.Request(context.Background(), "web", "robot", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

func describe(user *authn.User, err error) string {
	switch {
	case err != nil:
		return "error: " + err.Error()
	case user == nil:
		return "unauthenticated"
	}
	return user.Username + " in " + strings.Join(user.Groups, ",")
}

func TestWholeChain(t *testing.T) {
	w := newFixture(t)
	a := w.build(t)
	w.options.AnonymousAuth = false
	closed := w.build(t)
	proxied := func(header string) *http.Request {
		r := authntest.WithCertificates(w.frontends.Issue(t, authntest.Valid(start, "front-proxy-client")))
		r.Header.Set("X-Remote-User", header)
		return r
	}
	both := authntest.WithCertificates(w.cluster.Issue(t, authntest.Valid(start, "carl")))
	both.Header.Set("Authorization", "Bearer nonsense")
	pretender := authntest.WithCertificates(w.cluster.Issue(t, authntest.Valid(start, "carl")))
	pretender.Header.Set("X-Remote-User", "dora")
	empty := authntest.WithToken("")
	for name, c := range map[string]struct {
		request *http.Request
		want    string
	}{
		"front proxy":                            {proxied("dora"), "dora in system:authenticated"},
		"front proxy names the anonymous user":   {proxied("system:anonymous"), "system:anonymous in "},
		"certificate":                            {authntest.WithCertificates(w.cluster.Issue(t, authntest.Valid(start, "carl", "people"))), "carl in people,system:authenticated"},
		"certificate beside a bad token":         {both, "carl in system:authenticated"},
		"certificate, and a front proxy's words": {pretender, "carl in system:authenticated"},
		"token file":                             {authntest.WithToken("sesame-1"), "anna in admins,system:authenticated"},
		"service account":                        {authntest.WithToken(accountToken(t, a)), "system:serviceaccount:web:robot in system:serviceaccounts,system:serviceaccounts:web,system:authenticated"},
		"bootstrap token":                        {authntest.WithToken("abc123.0123456789abcdef"), "system:bootstrap:abc123 in system:bootstrappers,system:authenticated"},
		"bad token":                              {authntest.WithToken("nonsense"), "error: invalid bearer token"},
		"service account for others":             {authntest.WithToken(accountToken(t, a, "vault")), `error: [invalid bearer token, token audiences ["vault"] is invalid for the target audiences ["https://issuer.example" "https://old.example"]]`},
		"nothing":                                {empty, "system:anonymous in system:unauthenticated"},
	} {
		again := c.request.Clone(context.Background())
		got := describe(a.Authenticate(c.request))
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
		if left := len(c.request.Header); left > 0 && !strings.HasPrefix(got, "error") {
			t.Errorf("%s: %v left", name, c.request.Header)
		}
		want := c.want
		if name == "nothing" {
			want = "unauthenticated"
		}
		if got := describe(closed.Authenticate(again)); got != want {
			t.Errorf("%s, without anonymous: got %s", name, got)
		}
	}
	stranger := authntest.WithCertificates(authntest.NewCA(t, authntest.Valid(start, "other")).Issue(t, authntest.Valid(start, "carl")))
	got := describe(a.Authenticate(stranger))
	if !strings.HasPrefix(got, "error: [x509: certificate signed by unknown authority, verifying certificate SN=") {
		t.Errorf("a certificate of an unknown CA: got %s", got)
	}
	if strings.Contains(w.log.String(), "sesame") {
		t.Errorf("a secret is in the log:\n%s", w.log)
	}
}

func TestFrontProxyHeadersAreRemoved(t *testing.T) {
	w := newFixture(t)
	w.options.RequestHeader, w.options.RequestHeaderClientCAFile = requestheader.Headers{User: []string{"X-User"}, ExtraPrefix: []string{"X-More-"}}, ""
	r := authntest.WithToken("sesame-1")
	for _, name := range []string{"X-User", "X-More-Scope", "X-Remote-User", "X-Remote-Uid", "X-Remote-Group", "X-Remote-Extra-Scope"} {
		r.Header.Set(name, "root")
	}
	r.Header.Set("Accept", "*/*")
	if got := describe(w.build(t).Authenticate(r)); got != "anna in admins,system:authenticated" || len(r.Header) != 1 {
		t.Errorf("got %s, headers %v", got, r.Header)
	}
}

func TestReviewOfTokens(t *testing.T) {
	w := newFixture(t)
	a := w.build(t)
	issuer, old := "https://issuer.example", "https://old.example"
	for name, c := range map[string]struct {
		token     string
		audiences []string
		want      string
		good      []string
	}{
		"account":                   {accountToken(t, a), nil, "system:serviceaccount:web:robot", []string{issuer, old}},
		"account, one requested":    {accountToken(t, a), []string{"x", old}, "system:serviceaccount:web:robot", []string{old}},
		"account of others":         {accountToken(t, a, "vault"), []string{"vault", "x"}, "system:serviceaccount:web:robot", []string{"vault"}},
		"account of others, for us": {accountToken(t, a, "vault"), nil, "error", nil},
		"token file":                {"sesame-1", nil, "anna", []string{issuer, old}},
		"token file, one requested": {"sesame-1", []string{"x", old}, "anna", []string{old}},
		"token file for others":     {"sesame-1", []string{"vault"}, "error", nil},
		"bad":                       {"nonsense", nil, "error", nil},
		"token after a space":       {" sesame-1", []string{"vault"}, "system:anonymous", []string{"vault"}},
	} {
		user, good, err := authn.Chain{authn.Components, a}.AuthenticateToken(context.Background(), c.token, c.audiences)
		got := "error"
		if err == nil {
			got = user.Username
		}
		if got != c.want || !reflect.DeepEqual(good, c.good) {
			t.Errorf("%s: got %s, %v, %v", name, got, good, err)
		}
	}
}

func TestWithoutAnything(t *testing.T) {
	a, err := config.New(config.Default(), objectstest.New())
	if err != nil {
		t.Fatal(err)
	}
	if got := describe(a.Authenticate(authntest.WithToken("whatever"))); got != "system:anonymous in system:unauthenticated" {
		t.Errorf("got %s", got)
	}
	if user, _, err := a.AuthenticateToken(context.Background(), "whatever", nil); user.Username != "system:anonymous" || err != nil {
		t.Errorf("got %v, %v", user, err)
	}
	if a.Issuer != nil || a.Discovery != nil || len(a.ClientCAs) > 0 {
		t.Errorf("got %+v", a)
	}
}

func TestKeyInPlaceOfFiles(t *testing.T) {
	w := newFixture(t)
	w.options.ServiceAccountSigningKey = authntest.NewKey(t, elliptic.P256())
	w.options.ServiceAccountSigningKeyFile, w.options.ServiceAccountKeyFiles = "", nil
	w.options.ServiceAccountIssuers = []string{"not a URL"}
	a := w.build(t)
	if got := describe(a.Authenticate(authntest.WithToken(accountToken(t, a)))); !strings.HasPrefix(got, "system:serviceaccount:web:robot") {
		t.Errorf("got %s", got)
	}
	if a.Discovery != nil || !strings.Contains(w.log.String(), "issuer URL must use https scheme") {
		t.Errorf("an issuer that cannot be discovered: got %v, logged %s", a.Discovery, w.log)
	}
}

func TestInvalidOptions(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*fixture, *config.Options){
		"service-account-issuer is a required flag":            func(_ *fixture, o *config.Options) { o.ServiceAccountIssuers = nil },
		"service-account-issuer should not be an empty string": func(_ *fixture, o *config.Options) { o.ServiceAccountIssuers = []string{""} },
		`service-account-issuer "a" is already specified`:      func(_ *fixture, o *config.Options) { o.ServiceAccountIssuers = []string{"a", "a"} },
		"contained a ':' but was not a valid URL":              func(_ *fixture, o *config.Options) { o.ServiceAccountIssuers = []string{"https://a:%zz"} },
		"`--service-account-key-file` must be set":             func(_ *fixture, o *config.Options) { o.ServiceAccountKeyFiles = nil },
		"error reading public key file":                        func(_ *fixture, o *config.Options) { o.ServiceAccountKeyFiles = []string{o.TokenAuthFile} },
		"failed to parse service-account-issuer-key-file":      func(_ *fixture, o *config.Options) { o.ServiceAccountSigningKeyFile = o.TokenAuthFile },
		"unknown private key type ed25519.PrivateKey": func(w *fixture, o *config.Options) {
			o.ServiceAccountSigningKeyFile = w.write(t, "ed.key", keyPEM(t, edwards))
		},
		"the service-account-max-token-expiration must be between 1 hour and 2^32 sec": func(_ *fixture, o *config.Options) { o.ServiceAccountMaxTokenExpiration = time.Minute },
		"service-account-jwks-uri requires https scheme":                               func(_ *fixture, o *config.Options) { o.ServiceAccountJWKSURI = "http://a" },
		"service-account-jwks-uri must be a valid URL":                                 func(_ *fixture, o *config.Options) { o.ServiceAccountJWKSURI = ":" },
		"unable to load client CA file: error loading CA bundle":                       func(_ *fixture, o *config.Options) { o.ClientCAFile = o.TokenAuthFile },
		"unable to load client CA file: open":                                          func(_ *fixture, o *config.Options) { o.RequestHeaderClientCAFile = "/nowhere/ca.crt" },
		`empty value in "requestheader-username-headers"`:                              func(_ *fixture, o *config.Options) { o.RequestHeader.User = []string{""} },
		"contain overlapping certificates; --requestheader-allowed-names must be": func(_ *fixture, o *config.Options) {
			o.RequestHeaderClientCAFile, o.RequestHeaderAllowedNames = o.ClientCAFile, nil
		},
		"must have at least 3 columns": func(w *fixture, o *config.Options) {
			o.TokenAuthFile = w.write(t, "bad.csv", []byte("sesame-2,anna\n"))
		},
	} {
		w := newFixture(t)
		change(w, &w.options)
		if a, err := config.New(w.options, w.store); a != nil || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("want %s, got %v", want, err)
		}
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	w := newFixture(b)
	a := w.build(b)
	certificate := w.cluster.Issue(b, authntest.Valid(start, "carl"))
	token := accountToken(b, a)
	for name, send := range map[string]func() *http.Request{
		"certificate":     func() *http.Request { return authntest.WithCertificates(certificate) },
		"service account": func() *http.Request { return authntest.WithToken(token) },
		"token file":      func() *http.Request { return authntest.WithToken("sesame-1") },
		"bootstrap token": func() *http.Request { return authntest.WithToken("abc123.0123456789abcdef") },
		"anonymous":       func() *http.Request { return authntest.WithToken("") },
		"bad token":       func() *http.Request { return authntest.WithToken("nonsense") },
	} {
		b.Run(name, func(b *testing.B) {
			r := send()
			authorization := r.Header.Get("Authorization")
			b.ReportAllocs()
			for b.Loop() {
				r.Header.Set("Authorization", authorization)
				_, _ = a.Authenticate(r)
			}
		})
	}
}
