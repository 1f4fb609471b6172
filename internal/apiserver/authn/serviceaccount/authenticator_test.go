package serviceaccount

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/authn/jws"
)

func (w *fixture) known(t *testing.T, token string) error {
	t.Helper()
	user, _, err := w.AuthenticateToken(context.Background(), token, nil)
	if (user == nil) == (err == nil) {
		t.Fatalf("got %v, %v", user, err)
	}
	return err
}

func TestLeeway(t *testing.T) {
	w := newFixture(t)
	token := w.request(t, boundTo("Pod", "p")).Status.Token
	for after, good := range map[time.Duration]bool{-61 * time.Second: false, -time.Minute: true, time.Hour + time.Minute: true, time.Hour + 61*time.Second: false} {
		w.clock.SetTime(start.Add(after))
		if err := w.known(t, token); (err == nil) != good {
			t.Errorf("after %v: got %v", after, err)
		}
	}
	w.clock.SetTime(start)
	pod := w.Store.Get(corev1.Resource("pods"), "web", "p").DeepCopyObject().(*corev1.Pod)
	pod.DeletionTimestamp = &metav1.Time{Time: start.Add(-time.Minute)}
	w.Put(corev1.Resource("pods"), pod)
	if err := w.known(t, token); err != nil {
		t.Errorf("deleted a minute ago: %v", err)
	}
}

func TestOnlyTheSignatureIsCached(t *testing.T) {
	w := newFixture(t)
	token := w.request(t, boundTo("Pod", "p")).Status.Token
	if err := w.known(t, token); err != nil {
		t.Fatal(err)
	}
	w.Keys = &Keys{} // from here on, nothing can be verified
	w.gets = 0
	if err := w.known(t, token); err != nil || w.gets != 2 {
		t.Errorf("got %v after %d objects read", err, w.gets)
	}
	w.clock.SetTime(start.Add(verifiedTTL + time.Second))
	if err := w.known(t, token); err == nil {
		t.Error("still cached")
	}
}

func TestCacheIsBounded(t *testing.T) {
	w := newFixture(t)
	for range maxVerified + 10 {
		w.verified.Add(rand.Text(), nil, time.Hour)
	}
	if n := len(w.verified.Keys()); n != maxVerified {
		t.Errorf("%d tokens cached", n)
	}
}

func TestObjectsThatTheCacheLacks(t *testing.T) {
	w := newFixture(t)
	token := w.request(t, boundTo("Pod", "p")).Status.Token
	w.hidden = map[string]bool{"pods": true, "serviceaccounts": true}
	w.fresh = 0
	if err := w.known(t, token); err != nil || w.fresh != 2 {
		t.Errorf("got %v after %d fresh reads", err, w.fresh)
	}
	w.failing = errBroken
	if err := w.known(t, token); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
	w.hidden = map[string]bool{"pods": true}
	if err := w.known(t, token); !errors.Is(err, errInvalidated) {
		t.Errorf("got %v", err)
	}
}

func TestStaleTokenIsNoted(t *testing.T) {
	w := newFixture(t)
	token := w.request(t, lasting(boundTo("Pod", "p"), 3607)).Status.Token
	const key = "authentication.k8s.io/stale-token"
	w.clock.SetTime(start.Add(3607 * time.Second))
	if err := w.known(t, token); err != nil || w.notes.annotations[key] != "" {
		t.Errorf("in time: got %v, noted %q", err, w.notes.annotations[key])
	}
	w.clock.SetTime(start.Add(3617 * time.Second))
	if err := w.known(t, token); err != nil || w.notes.annotations[key] != "subject: system:serviceaccount:web:robot, seconds after warning threshold: 10" {
		t.Errorf("later: got %v, noted %q", err, w.notes.annotations[key])
	}
}

// claim signs claims that Issuer never would.
func (w *fixture) claim(t *testing.T, claims map[string]any) string {
	t.Helper()
	data, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	token, err := w.Signer.Sign(data)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestOddClaims(t *testing.T) {
	account := map[string]any{"name": "robot", "uid": "account-uid"}
	claimsOfRobot := map[string]any{"namespace": "web", "serviceaccount": account}
	legacy := func(without string) map[string]any {
		c := map[string]any{"iss": LegacyIssuer, "sub": "system:serviceaccount:web:robot", "kubernetes.io/serviceaccount/namespace": "web", "kubernetes.io/serviceaccount/secret.name": "s",
			"kubernetes.io/serviceaccount/service-account.name": "robot", "kubernetes.io/serviceaccount/service-account.uid": "account-uid"}
		delete(c, without)
		return c
	}
	for name, c := range map[string]struct {
		claims map[string]any
		want   string // "unknown" if it is not one of claimsOfRobot
	}{
		"one audience":                 {map[string]any{"iss": issuerURL, "aud": "api", "kubernetes.io": claimsOfRobot}, ""},
		"no audience":                  {map[string]any{"iss": issuerURL, "kubernetes.io": claimsOfRobot}, ""},
		"fraction of a second":         {map[string]any{"iss": issuerURL, "exp": 1785585600.5, "kubernetes.io": claimsOfRobot}, ""},
		"another issuer":               {map[string]any{"iss": "https://other", "kubernetes.io": claimsOfRobot}, "unknown"},
		"no issuer":                    {map[string]any{"kubernetes.io": claimsOfRobot}, "unknown"},
		"issuer that is a list":        {map[string]any{"iss": []string{issuerURL}, "kubernetes.io": claimsOfRobot}, "unknown"},
		"audience that is a number":    {map[string]any{"iss": issuerURL, "aud": 1, "kubernetes.io": claimsOfRobot}, "unknown"},
		"end that is a text":           {map[string]any{"iss": issuerURL, "exp": "soon", "kubernetes.io": claimsOfRobot}, "unknown"},
		"end beyond all time":          {map[string]any{"iss": issuerURL, "exp": 1e300, "kubernetes.io": claimsOfRobot}, "unknown"},
		"issued in the future":         {map[string]any{"iss": issuerURL, "iat": start.Add(2 * time.Minute).Unix(), "kubernetes.io": claimsOfRobot}, "service account token is issued in the future"},
		"no account":                   {map[string]any{"iss": issuerURL}, "service account token names no service account"},
		"no namespace":                 {map[string]any{"iss": issuerURL, "kubernetes.io": map[string]any{"serviceaccount": account}}, "service account token names no service account"},
		"bound to a webhook":           {map[string]any{"iss": issuerURL, "kubernetes.io": map[string]any{"namespace": "web", "serviceaccount": account, "validatingwebhookconfiguration": account}}, `feature gate "APIServerWebhookAuthenticationToken" is disabled, but token is webhook bound`},
		"names in another case":        {map[string]any{"ISS": issuerURL, "kubernetes.io": claimsOfRobot}, "unknown"},
		"legacy, not the Secret's":     {legacy(""), "Token has been invalidated"},
		"legacy without subject":       {legacy("sub"), "sub claim is missing"},
		"legacy without namespace":     {legacy("kubernetes.io/serviceaccount/namespace"), "namespace claim is missing"},
		"legacy without Secret":        {legacy("kubernetes.io/serviceaccount/secret.name"), "secretName claim is missing"},
		"legacy without account":       {legacy("kubernetes.io/serviceaccount/service-account.name"), "serviceAccountName claim is missing"},
		"legacy without account's UID": {legacy("kubernetes.io/serviceaccount/service-account.uid"), "serviceAccountUID claim is missing"},
		"legacy of another subject":    {func() map[string]any { c := legacy(""); c["sub"] = "system:serviceaccount:web:other"; return c }(), "sub claim is invalid"},
	} {
		w := newFixture(t)
		if name == "legacy, not the Secret's" {
			w.Remove(corev1.Resource("secrets"), "web", "s")
		}
		user, _, err := w.AuthenticateToken(context.Background(), w.claim(t, c.claims), nil)
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		case user == nil:
			got = "unknown"
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestSeveralKeysAndIssuers(t *testing.T) {
	w := newFixture(t)
	old, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jws.NewSigner(old)
	if err != nil {
		t.Fatal(err)
	}
	before := *w.Issuer
	before.Issuer, before.Signer = "https://old.example", signer
	if w.Keys, err = NewKeys(w.key.Public(), old.Public()); err != nil {
		t.Fatal(err)
	}
	w.Issuers = []string{issuerURL, "https://old.example"}
	answer, err := before.Request(context.Background(), "web", "robot", &authenticationv1.TokenRequest{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.known(t, answer.Status.Token); err != nil {
		t.Error(err)
	}
	if err := w.known(t, w.request(t, authenticationv1.TokenRequestSpec{}).Status.Token); err != nil {
		t.Error(err)
	}
	w.Issuers = []string{issuerURL}
	w.Authenticator = NewAuthenticator(w.Config)
	if user, _, err := w.AuthenticateToken(context.Background(), answer.Status.Token, nil); user != nil || err != nil {
		t.Errorf("an issuer no longer recognized: got %v, %v", user, err)
	}
}

func TestLegacyTokenInUse(t *testing.T) {
	const label, warning = "kubernetes.io/legacy-token-last-used", "Use tokens from the TokenRequest API"
	secret := func(w *fixture) *corev1.Secret {
		return w.Store.Get(corev1.Resource("secrets"), "web", "s").(*corev1.Secret)
	}
	w := newFixture(t)
	token := w.legacyToken(t)
	w.failing = errBroken
	if err := w.known(t, token); err != nil {
		t.Errorf("that the day cannot be written is not the token's fault: %v", err)
	}
	w.failing = nil
	if err := w.known(t, token); err != nil || secret(w).Labels[label] != "2026-08-01" {
		t.Errorf("got %v, labels %v", err, secret(w).Labels)
	}
	if w.notes.annotations["authentication.k8s.io/legacy-token-manual-secret"] != "s" || w.notes.annotations["authentication.k8s.io/legacy-token"] != "system:serviceaccount:web:robot" || len(w.notes.warnings) > 0 {
		t.Errorf("noted %v, warned %q", w.notes.annotations, w.notes.warnings)
	}
	version := secret(w).ResourceVersion
	if err := w.known(t, token); err != nil || secret(w).ResourceVersion != version {
		t.Errorf("written twice on one day, or %v", err)
	}
	w.clock.SetTime(start.Add(24 * time.Hour))
	if err := w.known(t, token); err != nil || secret(w).Labels[label] != "2026-08-02" {
		t.Errorf("got %v, labels %v", err, secret(w).Labels)
	}
	account := w.Store.Get(corev1.Resource("serviceaccounts"), "web", "robot").DeepCopyObject().(*corev1.ServiceAccount)
	account.Secrets = []corev1.ObjectReference{{Name: "s"}}
	w.Put(corev1.Resource("serviceaccounts"), account)
	if err := w.known(t, token); err != nil || len(w.notes.warnings) != 1 || !strings.HasPrefix(w.notes.warnings[0], warning) {
		t.Errorf("got %v, warned %q", err, w.notes.warnings)
	}
	w.Lookup = false
	w.Remove(corev1.Resource("secrets"), "web", "s")
	if err := w.known(t, token); err != nil {
		t.Errorf("without lookup, the signature is enough: %v", err)
	}
}

// FuzzAuthenticateToken looks for tokens that crash the authenticator, or that are accepted without a valid signature.
func FuzzAuthenticateToken(f *testing.F) {
	w := newFixture(f)
	good := w.request(f, boundTo("Pod", "p")).Status.Token
	f.Add(good)
	f.Add(w.legacyToken(f))
	f.Add("eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIn0.")
	f.Add("")
	legacy := w.legacyToken(f)
	f.Fuzz(func(t *testing.T, token string) {
		user, _, err := w.AuthenticateToken(context.Background(), token, nil)
		if user != nil && token != good && token != legacy {
			t.Errorf("recognized as %v", user)
		}
		if len(token) > 8 && err != nil && strings.Contains(err.Error(), token) {
			t.Errorf("the token is in the error: %v", err)
		}
	})
}

// FuzzClaims looks for claims that crash the parser: tokens of other issuers are parsed before they are rejected.
func FuzzClaims(f *testing.F) {
	f.Add([]byte(`{"aud":["a"],"exp":1,"iat":1.5,"iss":"x","jti":"y","kubernetes.io":{"namespace":"web","pod":{"name":"p"},"serviceaccount":{"name":"a"},"warnafter":7},"nbf":1e3,"sub":"z"}`))
	f.Add([]byte(`{"aud":"a","iss":"kubernetes/serviceaccount"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseClaims(data)
		if err != nil {
			return
		}
		_ = c.user()
		_ = c.atTime(start)
		_ = c.completeLegacy()
	})
}

func BenchmarkAuthenticateToken(b *testing.B) {
	w := newFixture(b)
	token := w.request(b, boundTo("Pod", "p")).Status.Token
	run := func(b *testing.B, before func()) {
		b.ReportAllocs()
		for b.Loop() {
			before()
			if user, _, err := w.AuthenticateToken(context.Background(), token, nil); user == nil || err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("known", func(b *testing.B) { run(b, func() {}) })
	b.Run("new", func(b *testing.B) { run(b, func() { w.verified.RemoveAll(func(any) bool { return true }) }) })
}

func BenchmarkRequest(b *testing.B) {
	w := newFixture(b)
	b.ReportAllocs()
	for b.Loop() {
		w.request(b, boundTo("Pod", "p"))
	}
}
