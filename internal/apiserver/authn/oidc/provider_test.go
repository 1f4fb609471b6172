package oidc_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"skiff/internal/apiserver/authn/authntest"
	"skiff/internal/apiserver/authn/configfile"
	"skiff/internal/apiserver/authn/oidc"
)

const bySubject = "    audiences: [skiff]\n  claimMappings:\n    username: {claim: sub, prefix: ''}\n"

// logText is a log that may be read while it is written.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// subject is a file with issuers that is followed.
type subject struct {
	t    testing.TB
	path string
	log  logText
	file *oidc.File
}

// follow starts to follow a file with this text.
func follow(t testing.TB, text string, change ...func(*oidc.Options)) *subject {
	t.Helper()
	s := &subject{t: t, path: filepath.Join(t.TempDir(), "authentication.yaml")}
	s.write(text)
	config, err := configfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o := oidc.Options{Clock: clock.RealClock{}, Retry: time.Millisecond, ReloadTimeout: 200 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&s.log, nil))}
	for _, c := range change {
		c(&o)
	}
	if s.file, err = oidc.NewFile(t.Context(), s.path, []byte(text), config, o); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *subject) write(text string) {
	s.t.Helper()
	next := s.path + ".next" // replaced as editors and mounted ConfigMaps do
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(next, s.path); err != nil {
		s.t.Fatal(err)
	}
}

// who returns who a token's user is, or the error.
func (s *subject) who(token string) string {
	user, err := s.file.Authenticate(context.Background(), token)
	switch {
	case err != nil:
		return "error: " + err.Error()
	case user == nil:
		return "nobody"
	}
	return user.Username
}

func (s *subject) must(token, want string) {
	s.t.Helper()
	if got := s.who(token); got != want && !(strings.HasPrefix(want, "error: ") && strings.HasPrefix(got, want)) {
		s.t.Errorf("got %s, want %s", got, want)
	}
}

var tokens atomic.Int32

// sign returns a token that was not seen before.
func sign(p *authntest.Provider, name string) string {
	return p.Sign(map[string]any{"sub": name, "aud": "skiff", "exp": time.Now().Add(time.Hour).Unix(), "nonce": fmt.Sprint(tokens.Add(1))})
}

const badSignature = "error: oidc: verify token: failed to verify signature: failed to verify id token signature"

// TestRotation: a key that the provider has just made is fetched when a token names it, and one that it no longer has goes with that.
func TestRotation(t *testing.T) {
	p := authntest.NewProvider(t)
	s := follow(t, authntest.Configuration(p.Issuer(bySubject)), func(o *oidc.Options) { o.Algorithms = oidc.Algorithms() })
	s.file.Reach()
	first := sign(p, "anna")
	s.must(first, "anna")
	s.must(sign(p, "bert"), "bert")
	if got := p.Count(authntest.KeysPath); got != 1 {
		t.Errorf("the keys were fetched %d times", got)
	}
	old, oldKey := sign(p, "carl"), p.Key()
	for _, algorithm := range []string{"ES256", "PS384", "ES512", "RS512", "ES384", "PS256", "RS384", "PS512"} {
		p.Rotate(algorithm)
		s.must(sign(p, algorithm), algorithm)
	}
	s.must(old, badSignature)
	s.must(p.SignWith(oldKey, map[string]any{"sub": "anna", "aud": "skiff", "exp": time.Now().Add(time.Hour).Unix()}), badSignature)
	s.must(first, "anna") // for a few seconds
}

// TestKeysExpire: keys are not fetched while the provider says that they do not change.
func TestKeysExpire(t *testing.T) {
	p := authntest.NewProvider(t)
	published := p.ServeKeys
	for header, want := range map[string]string{"max-age=3600": badSignature, "max-age=1": "bert", "no-store": "bert"} {
		p.Handle(authntest.KeysPath, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", header)
			published(w, r)
		})
		s := follow(t, authntest.Configuration(p.Issuer(bySubject)))
		s.file.Reach()
		s.must(sign(p, "anna"), "anna")
		p.Rotate("RS256")
		s.must(sign(p, "bert"), want)
	}
}

// TestUnknownKeys: tokens that name unknown keys do not have the provider flooded, and others still count.
func TestUnknownKeys(t *testing.T) {
	p := authntest.NewProvider(t)
	s := follow(t, authntest.Configuration(p.Issuer(bySubject)))
	s.file.Reach()
	s.must(sign(p, "anna"), "anna")
	stranger := p.Key()
	var together sync.WaitGroup
	for i := range 8 {
		together.Go(func() {
			for j := range 50 {
				key := stranger
				key.KeyID = fmt.Sprintf("none-%d-%d", i, j)
				s.must(p.SignWith(key, map[string]any{"sub": "root", "aud": "skiff", "exp": time.Now().Add(time.Hour).Unix()}), badSignature)
			}
		})
	}
	together.Wait()
	if got := p.Count(authntest.KeysPath); got > 30 {
		t.Errorf("the keys were fetched %d times", got)
	}
	s.must(sign(p, "bert"), "bert")
}

// TestSigningAlgorithms: only what is configured is accepted, RS256 unless told otherwise.
func TestSigningAlgorithms(t *testing.T) {
	p := authntest.NewProvider(t)
	s := follow(t, authntest.Configuration(p.Issuer(bySubject)))
	s.file.Reach()
	s.must(sign(p, "anna"), "anna")
	p.Rotate("PS256")
	s.must(sign(p, "anna"), `error: oidc: verify token: oidc: id token signed with unsupported algorithm, expected ["RS256"] got "PS256"`)
	if _, err := oidc.New(t.Context(), nil, oidc.Options{Algorithms: []string{"HS256"}}); err == nil || err.Error() != `oidc: unsupported signing alg: "HS256"` {
		t.Errorf("got %v", err)
	}
}

// TestProviderIsLate: tokens are refused until the provider has answered, and accepted then.
func TestProviderIsLate(t *testing.T) {
	p := authntest.NewProvider(t)
	answers := map[string]http.HandlerFunc{
		"503 Service Unavailable": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusServiceUnavailable) },
		"issuer did not match":    p.Document("https://other.example"),
		"unexpected end of JSON":  func(w http.ResponseWriter, _ *http.Request) {},
		"is larger than":          func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte(" "), 2<<20)) },
		"did not return JWKS URL": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"issuer":%q}`, p.URL) },
	}
	for want, answer := range answers {
		var ready atomic.Bool
		p.Handle(authntest.ConfigurationPath, func(w http.ResponseWriter, r *http.Request) {
			if ready.Load() {
				p.Document(p.URL)(w, r)
			} else {
				answer(w, r)
			}
		})
		s := follow(t, authntest.Configuration(p.Issuer(bySubject)))
		reached := make(chan struct{})
		go func() {
			defer close(reached)
			s.file.Reach()
		}()
		for !strings.Contains(fmt.Sprint(s.file.Healthy()), want) {
			time.Sleep(time.Millisecond)
		}
		s.must(sign(p, "anna"), "error: oidc: authenticator not initialized")
		ready.Store(true)
		<-reached
		if err := s.file.Healthy(); err != nil {
			t.Error(err)
		}
		s.must(sign(p, "anna"), "anna")
		if !strings.Contains(s.log.String(), want) {
			t.Errorf("the log does not say %q: %s", want, s.log.String())
		}
	}
}

// TestDiscoveryURL: the provider's configuration may be elsewhere than its issuer.
func TestDiscoveryURL(t *testing.T) {
	p := authntest.NewProvider(t)
	p.Handle("/elsewhere", p.Document("https://issuer.example"))
	issuer := strings.Replace(p.Issuer(bySubject), "url: "+p.URL, "url: https://issuer.example\n    discoveryURL: "+p.URL+"/elsewhere", 1)
	s := follow(t, authntest.Configuration(issuer))
	s.file.Reach()
	s.must(p.Sign(map[string]any{"iss": "https://issuer.example", "sub": "anna", "aud": "skiff", "exp": time.Now().Add(time.Hour).Unix()}), "anna")
	s.must(sign(p, "anna"), "nobody")
	if got := p.Count(authntest.ConfigurationPath); got > 0 {
		t.Errorf("asked %d times for the usual path", got)
	}
}

// TestEgress: the egress type says which way the requests to a provider go.
func TestEgress(t *testing.T) {
	p := authntest.NewProvider(t)
	for egress, want := range map[string]bool{"": false, "    egressSelectorType: cluster\n": true, "    egressSelectorType: controlplane\n": false} {
		var dialed atomic.Bool
		s := follow(t, authntest.Configuration(p.Issuer(egress+bySubject)), func(o *oidc.Options) {
			o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				dialed.Store(true)
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
		})
		s.file.Reach()
		if dialed.Load() != want {
			t.Errorf("%q: through the cluster: %v", egress, dialed.Load())
		}
	}
}

// TestUntrustedProvider: a provider with a certificate of another authority is not believed.
func TestUntrustedProvider(t *testing.T) {
	p, other := authntest.NewProvider(t), authntest.NewProvider(t)
	p.CA = string(authntest.NewCA(t, authntest.Valid(time.Now(), "other")).PEM())
	s := follow(t, authntest.Configuration(p.Issuer(bySubject), other.Issuer(bySubject)))
	go s.file.Reach()
	for !strings.Contains(s.log.String(), "certificate signed by unknown authority") {
		time.Sleep(time.Millisecond)
	}
	s.must(sign(p, "anna"), "error: oidc: authenticator not initialized")
	for s.who(sign(other, "bert")) != "bert" { // the other one is not held up
		time.Sleep(time.Millisecond)
	}
}

// TestReload: a changed file takes over when it can be used; otherwise what was there stays, and the log says why.
func TestReload(t *testing.T) {
	first, second := authntest.NewProvider(t), authntest.NewProvider(t)
	registry := prometheus.NewRegistry()
	initial := authntest.Configuration(first.Issuer(bySubject))
	s := follow(t, initial, func(o *oidc.Options) {
		o.Metrics = oidc.NewMetrics(registry)
		o.DisallowedIssuers = []string{"https://accounts.example"}
	})
	s.file.Reach()
	s.must(sign(first, "anna"), "anna")

	s.file.Check()
	if log := s.log.String(); log != "" {
		t.Errorf("nothing has changed, and yet: %s", log)
	}
	unreachable := strings.Replace(second.Issuer(bySubject), second.URL, "https://127.0.0.1:1", 1)
	for _, c := range []struct{ name, text, want string }{
		{"no YAML", "{", "json parse error"},
		{"empty", "", "empty config data"},
		{"another kind", "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n", "expected AuthenticationConfiguration, got *apiserver.EncryptionConfiguration"},
		{"an unknown field", initial + "more: 1\n", `unknown field \"more\"`},
		{"an invalid expression", authntest.Configuration(first.Issuer(strings.Replace(bySubject, "claim: sub, prefix: ''", "expression: claims.", 1))), "jwt[0].claimMappings.username.expression: Invalid value"},
		{"an issuer of service account tokens", strings.Replace(initial, first.URL, "https://accounts.example", 1), "jwt[0].issuer.url: Invalid value"},
		{"anonymous requests", initial + "anonymous: {enabled: false}\n", "anonymous: Forbidden: changed from initial configuration file"},
		{"too large", initial + strings.Repeat("#\n", configfile.MaxSize/2), "is larger than"},
		{"a provider that does not answer", authntest.Configuration(unreachable), "providers have not answered within 200ms: oidc: authenticator for issuer"},
	} {
		before := len(s.log.String())
		s.write(c.text)
		s.file.Check()
		if log := s.log.String()[before:]; !strings.Contains(log, c.want) || !strings.Contains(log, "the previous one stays in use") {
			t.Errorf("%s: the log says %q, want %q", c.name, log, c.want)
		}
		s.must(sign(first, "anna"), "anna")
	}
	before := len(s.log.String())
	s.file.Check() // the provider is tried again, but not yet
	if log := s.log.String()[before:]; log != "" {
		t.Errorf("tried again at once: %s", log)
	}

	s.write(authntest.Configuration(first.Issuer(bySubject), second.Issuer(bySubject)))
	s.file.Check()
	s.must(sign(first, "anna"), "anna")
	s.must(sign(second, "bert"), "bert")
	s.write(authntest.Configuration(second.Issuer(bySubject)))
	s.file.Check()
	s.must(sign(first, "anna"), "nobody")
	s.must(sign(second, "bert"), "bert")
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	s.file.Check()
	s.must(sign(second, "bert"), "bert")

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]int{}
	for _, family := range families {
		series[family.GetName()] = len(family.Metric)
		for _, m := range family.Metric {
			if m.Counter != nil { // of reloads
				series[m.Label[len(m.Label)-1].GetValue()] = int(m.Counter.GetValue())
			}
		}
	}
	for name, want := range map[string]int{"success": 2, "failure": 10, "apiserver_authentication_config_controller_last_config_info": 1,
		"apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info": 2, "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds": 2,
		"apiserver_authentication_jwt_authenticator_latency_seconds": 2} {
		if series[name] != want {
			t.Errorf("%s: %d, want %d", name, series[name], want)
		}
	}
}

// TestRun: the file is followed while Run runs, which ends with the context.
func TestRun(t *testing.T) {
	p := authntest.NewProvider(t)
	s := &subject{t: t, path: filepath.Join(t.TempDir(), "authentication.yaml")}
	text := authntest.Configuration(" []\n")
	s.write(text)
	config, err := configfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if s.file, err = oidc.NewFile(ctx, s.path, []byte(text), config, oidc.Options{Clock: clock.RealClock{}, Log: slog.New(slog.NewTextHandler(&s.log, nil))}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.file.Run()
	}()
	s.write(authntest.Configuration(p.Issuer(bySubject)))
	for s.who(sign(p, "anna")) != "anna" {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-ended
}

// FuzzToken: no token that the provider has not signed is accepted.
func FuzzToken(f *testing.F) {
	p := authntest.NewProvider(f)
	s := follow(f, authntest.Configuration(p.Issuer(bySubject)))
	s.file.Reach()
	good := p.Sign(map[string]any{"sub": "anna", "aud": "skiff", "exp": time.Now().Add(time.Hour).Unix()})
	parts := strings.Split(good, ".")
	f.Add(parts[0], parts[1], parts[2])
	f.Add("eyJhbGciOiJub25lIn0", parts[1], "")
	f.Add("{", parts[1], parts[2])
	f.Add("", "", "")
	f.Fuzz(func(t *testing.T, header, payload, signature string) {
		for _, token := range []string{header + "." + payload + "." + signature, header + "." + parts[1] + "." + signature, parts[0] + "." + payload + "." + parts[2], header + "." + parts[1] + "." + parts[2]} {
			user, err := s.file.Authenticate(context.Background(), token)
			if user != nil && (err != nil || user.Username != "anna") {
				t.Fatalf("%s is %v, %v", token, user, err)
			}
			if user != nil && token != good && strings.TrimRight(token, "\r\n") != good {
				t.Fatalf("%q is %v", token, user)
			}
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	p := authntest.NewProvider(b)
	now := clocktesting.NewFakePassiveClock(time.Now())
	token := p.Sign(map[string]any{"sub": "anna", "aud": "skiff", "exp": now.Now().Add(100 * 365 * 24 * time.Hour).Unix()})
	for name, lines := range map[string]string{"claims": bySubject, "expressions": "    audiences: [skiff]\n  claimMappings:\n    username: {expression: claims.sub}\n    groups: {expression: \"claims.?groups.orValue([])\"}\n"} {
		s := follow(b, authntest.Configuration(p.Issuer(lines)), func(o *oidc.Options) { o.Clock = now })
		s.file.Reach()
		for which, step := range map[string]time.Duration{"remembered": 0, "verified": 11 * time.Second} {
			b.Run(name+"/"+which, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					now.SetTime(now.Now().Add(step))
					if s.who(token) != "anna" {
						b.Fatal()
					}
				}
			})
		}
	}
}
