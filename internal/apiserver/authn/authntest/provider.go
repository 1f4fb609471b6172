package authntest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	jose "gopkg.in/go-jose/go-jose.v2"
)

// Provider is an OpenID Connect provider, which serves over HTTPS and signs tokens.
type Provider struct {
	URL string
	CA  string // the PEM certificate of its authority

	t       testing.TB
	server  *httptest.Server
	mu      sync.Mutex
	current jose.JSONWebKey
	keys    []jose.JSONWebKey // that it publishes
	issued  int               // keys so far
	paths   map[string]http.HandlerFunc
	counts  map[string]int
}

// The paths of a provider.
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeysPath          = "/keys"
)

// NewProvider starts a provider with one key for RS256.
func NewProvider(t testing.TB) *Provider {
	t.Helper()
	p := &Provider{t: t, paths: map[string]http.HandlerFunc{}, counts: map[string]int{}}
	p.server = httptest.NewTLSServer(p)
	t.Cleanup(p.server.Close)
	p.URL = p.server.URL
	p.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw}))
	p.Handle(ConfigurationPath, p.Document(p.URL))
	p.Handle(KeysPath, p.ServeKeys)
	p.Rotate("RS256")
	return p
}

// Document answers with the configuration of a provider whose issuer has this URL, and whose keys are those of p.
func (p *Provider) Document(issuer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		write(w, map[string]any{"issuer": issuer, "jwks_uri": p.URL + KeysPath, "id_token_signing_alg_values_supported": []string{"RS256"}})
	}
}

func write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// ServeHTTP answers a request.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	handle := p.paths[r.URL.Path]
	p.counts[r.URL.Path]++
	p.mu.Unlock()
	if handle == nil {
		http.NotFound(w, r)
		return
	}
	handle(w, r)
}

// Handle has requests for a path answered by handle.
func (p *Provider) Handle(path string, handle http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paths[path] = handle
}

// Count returns how often a path was asked for.
func (p *Provider) Count(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[path]
}

// ServeKeys answers with the keys that the provider publishes.
func (p *Provider) ServeKeys(w http.ResponseWriter, _ *http.Request) {
	set := jose.JSONWebKeySet{}
	p.mu.Lock()
	for _, k := range p.keys {
		set.Keys = append(set.Keys, k.Public())
	}
	p.mu.Unlock()
	write(w, set)
}

// Rotate makes a key for the algorithm, and publishes no other any more.
func (p *Provider) Rotate(algorithm string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.issued++
	p.current = jose.JSONWebKey{Key: p.newKey(algorithm), KeyID: fmt.Sprintf("key-%d", p.issued), Algorithm: algorithm, Use: "sig"}
	p.keys = []jose.JSONWebKey{p.current}
}

// rsaKeys are shared by all providers, as they take long to make.
var rsaKeys = [...]func() *rsa.PrivateKey{sync.OnceValue(newRSAKey), sync.OnceValue(newRSAKey), sync.OnceValue(newRSAKey)}

func newRSAKey() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
}

func (p *Provider) newKey(algorithm string) crypto.PrivateKey {
	curve := map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()}[algorithm]
	if curve == nil {
		return rsaKeys[p.issued%len(rsaKeys)]()
	}
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	return key
}

// Sign returns a token with these claims, and with those that say who issued it unless claims do.
func (p *Provider) Sign(claims map[string]any) string {
	p.t.Helper()
	p.mu.Lock()
	key := p.current
	p.mu.Unlock()
	return p.SignWith(key, claims)
}

// Key returns the key that signs.
func (p *Provider) Key() jose.JSONWebKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// SignWith is Sign with a key of the caller.
func (p *Provider) SignWith(key jose.JSONWebKey, claims map[string]any) string {
	p.t.Helper()
	all := map[string]any{"iss": p.URL}
	maps.Copy(all, claims)
	payload, err := json.Marshal(all)
	if err != nil {
		p.t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key}, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		p.t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		p.t.Fatal(err)
	}
	return token
}

// Issuer returns the issuer in the form of an AuthenticationConfiguration, with what the lines of YAML say beside its URL and authority. They are
// indented by four.
func (p *Provider) Issuer(lines string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- issuer:\n    url: %s\n    certificateAuthority: %q\n", p.URL, p.CA)
	b.WriteString(lines)
	return b.String()
}

// Configuration returns an AuthenticationConfiguration with these issuers.
func Configuration(issuers ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n" + strings.Join(issuers, "")
}
