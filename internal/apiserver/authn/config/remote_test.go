package config_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"skiff/internal/apiserver/authn/authntest"
	"skiff/internal/apiserver/authn/config"
)

// withProvider returns a fixture with a provider, whose tokens are recognized as its flags say.
func withProvider(t testing.TB, change func(*fixture, *authntest.Provider)) (*config.Authentication, *authntest.Provider) {
	t.Helper()
	w, p := newFixture(t), authntest.NewProvider(t)
	o := &w.options
	o.OIDC.Given, o.OIDC.IssuerURL, o.OIDC.ClientID, o.OIDC.CAFile = true, p.URL, "skiff", w.write(t, "provider.crt", []byte(p.CA))
	change(w, p)
	ctx, cancel := context.WithCancel(t.Context())
	o.Stopping = ctx
	a := w.build(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.Run()
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return a, p
}

func tokenOf(p *authntest.Provider, more ...string) string {
	claims := map[string]any{"sub": "anna", "email": "anna@shop.example", "aud": "skiff", "exp": start.Unix() + 3600, "groups": []string{"people"}}
	for i := 0; i < len(more); i += 2 {
		claims[more[i]] = more[i+1]
	}
	return p.Sign(claims)
}

// TestOIDCFlags: what each of --oidc-* does.
func TestOIDCFlags(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(*config.Options)
		more       []string
		algorithm  string
	}{
		{"the issuer before the name", "ISSUER#anna in system:authenticated", func(*config.Options) {}, nil, ""},
		{"no prefix", "anna in system:authenticated", func(o *config.Options) { o.OIDC.UsernamePrefix = "-" }, nil, ""},
		{"an email", "anna@shop.example in system:authenticated", func(o *config.Options) { o.OIDC.UsernameClaim = "email" }, nil, ""},
		{"groups", "u:anna in g:people,system:authenticated", func(o *config.Options) {
			o.OIDC.UsernamePrefix, o.OIDC.GroupsClaim, o.OIDC.GroupsPrefix = "u:", "groups", "g:"
		}, nil, ""},
		{"a required claim", "u:anna in system:authenticated", func(o *config.Options) {
			o.OIDC.UsernamePrefix, o.OIDC.RequiredClaims = "u:", map[string]string{"hd": "shop"}
		}, []string{"hd", "shop"}, ""},
		{"a required claim that is not there", "error: [invalid bearer token, oidc: required claim hd not present in ID token]",
			func(o *config.Options) { o.OIDC.RequiredClaims = map[string]string{"hd": "shop"} }, nil, ""},
		{"another algorithm", `error: [invalid bearer token, oidc: verify token: oidc: id token signed with unsupported algorithm, expected ["RS256"] got "ES256"]`,
			func(*config.Options) {}, nil, "ES256"},
		{"algorithms", "ISSUER#anna in system:authenticated", func(o *config.Options) { o.OIDC.SigningAlgs = []string{"PS256", "ES256"} }, nil, "ES256"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, p := withProvider(t, func(w *fixture, p *authntest.Provider) {
				c.change(&w.options)
				if c.algorithm != "" {
					p.Rotate(c.algorithm)
				}
			})
			token := tokenOf(p, c.more...)
			got := describe(a.Authenticate(authntest.WithToken(token)))
			for strings.Contains(got, "not initialized") {
				got = describe(a.Authenticate(authntest.WithToken(token)))
			}
			if want := strings.ReplaceAll(c.want, "ISSUER", p.URL); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// TestOrderOfTokens: tokens of this server are not sent to a webhook, and those that neither this server nor an issuer knows are.
func TestOrderOfTokens(t *testing.T) {
	var asked []string
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		http.Error(w, "no", http.StatusForbidden)
	}))
	t.Cleanup(s.Close)
	var w *fixture
	a, p := withProvider(t, func(f *fixture, _ *authntest.Provider) {
		w = f
		kubeconfig := clientcmdapi.NewConfig()
		kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: s.URL, InsecureSkipTLSVerify: true}
		kubeconfig.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
		kubeconfig.CurrentContext = "c"
		text, err := clientcmd.Write(*kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		f.options.WebhookConfigFile = f.write(t, "webhook.kubeconfig", text)
	})
	for strings.Contains(describe(a.Authenticate(authntest.WithToken(tokenOf(p)))), "not initialized") {
	}
	asked = nil
	for _, token := range []string{"sesame-1", "abc123.0123456789abcdef", accountToken(t, a), tokenOf(p, "nonce", "1")} {
		if got := describe(a.Authenticate(authntest.WithToken(token))); strings.HasPrefix(got, "error") || len(asked) > 0 {
			t.Errorf("%.10s: got %s, and the webhook was asked %d times", token, got, len(asked))
		}
	}
	if got := describe(a.Authenticate(authntest.WithToken("nonsense"))); !strings.HasPrefix(got, "error: [invalid bearer token, ") || len(asked) != 1 {
		t.Errorf("got %s, and the webhook was asked %d times", got, len(asked))
	}
	if strings.Contains(w.log.String(), "sesame") {
		t.Errorf("a secret is in the log:\n%s", w.log)
	}
}

// TestAnonymous: who may be anonymous, and where.
func TestAnonymous(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
	for _, c := range []struct {
		name, file string
		flag       bool
		paths      map[string]string
	}{
		{"everywhere", "", true, map[string]string{"/api": "system:anonymous in system:unauthenticated"}},
		{"nowhere", "", false, map[string]string{"/api": "unauthenticated", "/livez": "unauthenticated"}},
		{"by the flag, beside a file", head, false, map[string]string{"/livez": "unauthenticated"}},
		{"by a file", head + "anonymous: {enabled: true}", false, map[string]string{"/api": "system:anonymous in system:unauthenticated"}},
		{"not by a file", head + "anonymous: {enabled: false}", true, map[string]string{"/livez": "unauthenticated"}},
		{"at paths", head + "anonymous: {enabled: true, conditions: [{path: /livez}, {path: /readyz}]}", false, map[string]string{
			"/livez": "system:anonymous in system:unauthenticated", "/readyz": "system:anonymous in system:unauthenticated", "/healthz": "unauthenticated", "/livez/": "unauthenticated",
			"/livez/etcd": "unauthenticated", "/LIVEZ": "unauthenticated", "": "unauthenticated", "/api": "unauthenticated", "//livez": "unauthenticated"}},
	} {
		w := newFixture(t)
		w.options.AnonymousAuth = c.flag
		if c.file != "" {
			w.options.AuthenticationConfigFile = w.write(t, "authentication.yaml", []byte(c.file))
		}
		a := w.build(t)
		for path, want := range c.paths {
			r := authntest.WithToken("")
			r.Header.Del("Authorization")
			r.URL.Path = path
			if got := describe(a.Authenticate(r)); got != want {
				t.Errorf("%s, at %q: got %s, want %s", c.name, path, got, want)
			}
		}
		r := authntest.WithToken("nonsense")
		r.URL.Path = "/livez"
		if got := describe(a.Authenticate(r)); got != "error: invalid bearer token" && !strings.HasPrefix(got, "error: [invalid bearer token") {
			t.Errorf("%s, a bad token: got %s", c.name, got)
		}
	}
}

// TestInvalidRemoteOptions: what is refused at the start.
func TestInvalidRemoteOptions(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
	file := func(text string) func(testing.TB, *fixture, *config.Options) {
		return func(t testing.TB, w *fixture, o *config.Options) {
			o.AuthenticationConfigFile = w.write(t, "authentication.yaml", []byte(text))
		}
	}
	for want, change := range map[string]func(testing.TB, *fixture, *config.Options){
		"oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set": func(_ testing.TB, _ *fixture, o *config.Options) {
			o.OIDC.Given, o.OIDC.IssuerURL = true, "https://a.example"
		},
		"authentication-config file and oidc-* flags are mutually exclusive": func(t testing.TB, w *fixture, o *config.Options) {
			file(head)(t, w, o)
			o.OIDC.Given = true
		},
		"anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file": func(t testing.TB, w *fixture, o *config.Options) {
			file(head+"anonymous: {enabled: true}")(t, w, o)
			o.AnonymousAuthGiven = true
		},
		"invalid authentication configuration: jwt[0].issuer.url: Invalid value: \"http://a.example\": URL scheme must be https": func(_ testing.TB, _ *fixture, o *config.Options) {
			o.OIDC.Given, o.OIDC.IssuerURL, o.OIDC.ClientID = true, "http://a.example", "c"
		},
		`oidc: unsupported signing alg: "HS256"`: func(_ testing.TB, _ *fixture, o *config.Options) {
			o.OIDC.Given, o.OIDC.IssuerURL, o.OIDC.ClientID, o.OIDC.SigningAlgs = true, "https://a.example", "c", []string{"HS256"}
		},
		"URL must not overlap with disallowed issuers: [https://issuer.example https://old.example]": file(head + "jwt: [{issuer: {url: 'https://old.example', audiences: [a]}, claimMappings: {username: {claim: sub, prefix: ''}}}]"),
		`failed to load authentication configuration from file`:                                      file("{"),
		"no such file or directory": func(_ testing.TB, w *fixture, o *config.Options) { o.AuthenticationConfigFile = w.dir + "/none" },
		"--authentication-token-webhook-config-file: ": func(_ testing.TB, w *fixture, o *config.Options) {
			o.WebhookConfigFile = w.dir + "/none"
		},
		`unsupported authentication webhook version "v2"`: func(_ testing.TB, _ *fixture, o *config.Options) {
			o.WebhookConfigFile, o.WebhookVersion = o.TokenAuthFile, "v2"
		},
		"password file": func(t testing.TB, w *fixture, o *config.Options) {
			o.BasicAuthFile = w.write(t, "users.csv", []byte("sesame-3,anna\n"))
		},
	} {
		w := newFixture(t)
		change(t, w, &w.options)
		if a, err := config.New(w.options, w.store); a != nil || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("want %s, got %v", want, err)
		}
	}
}

// TestChainWithPassword: a password comes after a front proxy and before a certificate, and a wrong one does not hold up the rest.
func TestChainWithPassword(t *testing.T) {
	w := newFixture(t)
	w.options.BasicAuthFile = w.write(t, "users.csv", []byte("sesame-3,dora,9,people\n"))
	a := w.build(t)
	certificate := w.cluster.Issue(t, authntest.Valid(start, "carl"))
	proxy := w.frontends.Issue(t, authntest.Valid(start, "front-proxy-client"))
	for _, c := range []struct {
		name, password, want string
		proxied              bool
	}{{"a password", "sesame-3", "dora in people,system:authenticated", false}, {"a wrong password", "x", "carl in system:authenticated", false}, {"a front proxy", "sesame-3", "eve in system:authenticated", true}} {
		r := authntest.WithCertificates(certificate)
		if c.proxied {
			r = authntest.WithCertificates(proxy)
			r.Header.Set("X-Remote-User", "eve")
		}
		r.SetBasicAuth("dora", c.password)
		if got := describe(a.Authenticate(r)); got != c.want || r.Header.Get("Authorization") != "" {
			t.Errorf("%s: got %s, want %s; the header is %q", c.name, got, c.want, r.Header.Get("Authorization"))
		}
	}
}
