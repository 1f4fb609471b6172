package authn_test

import (
	"context"
	"crypto"
	"crypto/elliptic"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/authntest"
	"skiff/internal/apiserver/authn/bearer"
	"skiff/internal/apiserver/authn/bootstraptoken"
	"skiff/internal/apiserver/authn/jws"
	"skiff/internal/apiserver/authn/serviceaccount"
	"skiff/internal/apiserver/authn/tokenfile"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog"
)

const issuer = "https://issuer.example"

var serverAudiences = []string{issuer, "api"}

func attack(name, token, err string) authntest.Attack {
	return authntest.Attack{Name: name, Request: func() *http.Request { return authntest.WithToken(token) }, Error: err}
}

func tokenFile(t *testing.T) *authntest.Subject {
	path := filepath.Join(t.TempDir(), "tokens.csv")
	const token, second = "sesame-1", "sesame-2"
	if err := os.WriteFile(path, []byte(token+",anna,7,\"admins,people\"\n"+second+",bert,8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := tokenfile.Read(path, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return &authntest.Subject{
		Authenticator: bearer.New(authn.ForServer(serverAudiences, file.Authenticate), authn.NoNotes{}),
		Good:          func() *http.Request { return authntest.WithToken(token) },
		User:          authn.User{Username: "anna", UID: "7", Groups: []string{"admins", "people"}},
		Secrets:       []string{token, second},
		Bad: map[authntest.Hazard][]authntest.Attack{
			authntest.WrongKey:      {attack("unknown", "sesame-3", "invalid bearer token")},
			authntest.WrongAudience: {{Name: "reviewed for another", Audiences: []string{"vault"}, Error: "invalid bearer token"}},
			authntest.Tampered:      {attack("longer", token+"x", "invalid bearer token"), attack("shorter", token[1:], "invalid bearer token")},
			authntest.Oversized:     {attack("padded", token+strings.Repeat("x", bearer.MaxToken), "bearer token is too long")},
			authntest.Empty:         {attack("no token", "", ""), {Name: "no header", Request: bare}},
		},
		Exempt: map[authntest.Hazard]string{authntest.Expired: "the tokens do not expire", authntest.NotYetValid: "the tokens have no beginning",
			authntest.Revoked: "the file is read at the start, as upstream does"},
	}
}

func bootstrapToken(t *testing.T) *authntest.Subject {
	clock, store := newClock(), objectstest.New()
	const id, secret = "abc123", "0123456789abcdef"
	set := func(change func(*corev1.Secret)) func() {
		return func() {
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id}, Type: corev1.SecretTypeBootstrapToken,
				Data: map[string][]byte{"token-id": []byte(id), "token-secret": []byte(secret), "usage-bootstrap-authentication": []byte("true"),
					"auth-extra-groups": []byte("system:bootstrappers:workers,system:bootstrappers:a"), "expiration": []byte(start.Add(time.Hour).Format(time.RFC3339))}}
			change(s)
			store.Put(corev1.Resource("secrets"), s)
		}
	}
	set(func(*corev1.Secret) {})()
	with := func(key, value string) func() {
		return set(func(s *corev1.Secret) { s.Data[key] = []byte(value) })
	}
	const invalid = "invalid bearer token"
	return &authntest.Subject{
		Authenticator: bearer.New(authn.ForServer(serverAudiences, bootstraptoken.New(store, clock, quiet).Authenticate), authn.NoNotes{}),
		Good:          func() *http.Request { return authntest.WithToken(id + "." + secret) },
		User:          authn.User{Username: "system:bootstrap:abc123", Groups: []string{"system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:workers"}},
		Secrets:       []string{secret},
		Bad: map[authntest.Hazard][]authntest.Attack{
			authntest.WrongKey: {attack("another secret", id+".0123456789abcdee", invalid), attack("unknown ID", "abc124."+secret, invalid)},
			authntest.Expired: {
				{Name: "at the very second", Before: func() { clock.SetTime(start.Add(time.Hour)) }, Error: invalid},
				{Name: "with an invalid expiration", Before: with("expiration", "soon"), Error: invalid},
			},
			authntest.WrongAudience: {{Name: "reviewed for another", Audiences: []string{"vault"}, Error: invalid}},
			authntest.Tampered:      {attack("upper case", id+"."+strings.ToUpper(secret), invalid), attack("longer", id+"."+secret+"0", invalid), attack("dots", id+"."+secret+".x", invalid)},
			authntest.Oversized:     {attack("padded", id+"."+strings.Repeat("0", bearer.MaxToken), "bearer token is too long")},
			authntest.Empty:         {attack("no secret", id+".", invalid), attack("no ID", "."+secret, invalid)},
			authntest.Revoked: {
				{Name: "Secret deleted", Before: func() { store.Remove(corev1.Resource("secrets"), "kube-system", "bootstrap-token-"+id) }, Error: invalid},
				{Name: "Secret being deleted", Before: set(func(s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{Time: start} }), Error: invalid},
				{Name: "Secret of another type", Before: set(func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }), Error: invalid},
				{Name: "Secret of another ID", Before: with("token-id", "abc124"), Error: invalid},
				{Name: "no longer for authentication", Before: with("usage-bootstrap-authentication", "yes"), Error: invalid},
				{Name: "a group that is not for bootstrapping", Before: with("auth-extra-groups", "system:masters"), Error: invalid},
			},
		},
		Exempt: map[authntest.Hazard]string{authntest.NotYetValid: "bootstrap tokens have no beginning"},
	}
}

// accounts is a fixture with one service account and the objects that its tokens can be bound to.
type accounts struct {
	t      *testing.T
	clock  *clocktesting.FakePassiveClock
	store  *objectstest.Store
	issuer *serviceaccount.Issuer
	auth   authn.Authenticator
}

func newAccounts(t *testing.T) *accounts {
	w := &accounts{t: t, clock: newClock(), store: objectstest.New()}
	meta := func(namespace, name, uid string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}
	}
	w.store.Put(corev1.Resource("serviceaccounts"), &corev1.ServiceAccount{ObjectMeta: meta("web", "robot", "account-uid")})
	w.store.Put(corev1.Resource("nodes"), &corev1.Node{ObjectMeta: meta("", "n1", "node-uid")})
	w.store.Put(corev1.Resource("pods"), &corev1.Pod{ObjectMeta: meta("web", "p", "pod-uid"), Spec: corev1.PodSpec{ServiceAccountName: "robot", NodeName: "n1"}})
	w.store.Put(corev1.Resource("secrets"), &corev1.Secret{ObjectMeta: meta("web", "s", "secret-uid"), Type: corev1.SecretTypeServiceAccountToken})
	key := authntest.NewKey(t, elliptic.P256())
	w.issuer = w.issuerWith(key)
	keys, err := serviceaccount.NewKeys(authntest.NewKey(t, elliptic.P384()).Public(), key.Public())
	if err != nil {
		t.Fatal(err)
	}
	w.auth = bearer.New(serviceaccount.NewAuthenticator(serviceaccount.Config{Issuers: []string{issuer, "https://old.example"}, Audiences: serverAudiences, Keys: keys, Lookup: true,
		Objects: w.store, Clock: w.clock, Notes: authn.NoNotes{}, Log: quiet}), authn.NoNotes{})
	return w
}

func (w *accounts) issuerWith(key crypto.PrivateKey) *serviceaccount.Issuer {
	w.t.Helper()
	signer, err := jws.NewSigner(key)
	if err != nil {
		w.t.Fatal(err)
	}
	return &serviceaccount.Issuer{Issuer: issuer, Audiences: serverAudiences, Signer: signer, ExtendExpiration: true, Objects: w.store, Clock: w.clock, Notes: authn.NoNotes{}}
}

func (w *accounts) token(i *serviceaccount.Issuer, spec authenticationv1.TokenRequestSpec) string {
	w.t.Helper()
	answer, err := i.Request(context.Background(), "web", "robot", &authenticationv1.TokenRequest{Spec: spec}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer.Status.Token
}

func (w *accounts) boundTo(kind, name string) authenticationv1.TokenRequestSpec {
	return authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name}}
}

// change replaces an object by a changed copy.
func (w *accounts) change(resource, namespace, name string, change func(metav1.Object)) func() {
	return func() {
		obj := w.store.Get(corev1.Resource(resource), namespace, name).DeepCopyObject().(catalog.Object)
		change(obj)
		w.store.Put(corev1.Resource(resource), obj)
	}
}

func (w *accounts) remove(resource, namespace, name string) func() {
	return func() { w.store.Remove(corev1.Resource(resource), namespace, name) }
}

// deletedAgo sets the deletion timestamp of an object to that long ago.
func deletedAgo(ago time.Duration) func(metav1.Object) {
	return func(o metav1.Object) { o.SetDeletionTimestamp(&metav1.Time{Time: start.Add(-ago)}) }
}

func recreated(o metav1.Object) { o.SetUID("another-uid") }

// subject returns the subject that all kinds of service account tokens have in common.
func (w *accounts) subject(spec authenticationv1.TokenRequestSpec, extra map[string]authenticationv1.ExtraValue) *authntest.Subject {
	token := w.token(w.issuer, spec)
	stranger := w.issuerWith(authntest.NewKey(w.t, elliptic.P256()))
	vault := spec
	vault.Audiences = []string{"vault"}
	parts := strings.Split(token, ".")
	id := between(w.t, parts[1], `"jti":"`, `"`)
	user := authn.User{Username: "system:serviceaccount:web:robot", UID: "account-uid", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:web"},
		Extra: map[string]authenticationv1.ExtraValue{authn.ExtraCredentialID: {"JTI=" + id}}}
	for k, v := range extra {
		user.Extra[k] = v
	}
	s := &authntest.Subject{Authenticator: w.auth, Good: func() *http.Request { return authntest.WithToken(token) }, User: user, Secrets: append(parts, token),
		Bad: map[authntest.Hazard][]authntest.Attack{
			authntest.WrongKey: {
				attack("a key the server does not know", w.token(stranger, spec), "invalid signature, no keys found"),
				attack("the same, in the name of one it knows", parts[0]+"."+strings.SplitN(w.token(stranger, spec), ".", 2)[1], "invalid signature"),
			},
			authntest.Expired:     {{Name: "and the leeway", Before: func() { w.clock.SetTime(start.Add(time.Hour + 61*time.Second)) }, Error: "service account token has expired"}},
			authntest.NotYetValid: {{Name: "and before the leeway", Before: func() { w.clock.SetTime(start.Add(-61 * time.Second)) }, Error: "service account token is not valid yet"}},
			authntest.WrongAudience: {
				attack("issued for another", w.token(w.issuer, vault), `token audiences ["vault"] is invalid for the target audiences ["https://issuer.example" "api"]`),
				{Name: "reviewed for another", Audiences: []string{"vault"}, Error: `is invalid for the target audiences ["vault"]`},
			},
			authntest.Oversized: {attack("padded", token+strings.Repeat("x", bearer.MaxToken), "bearer token is too long")},
			authntest.Empty: {
				attack("no parts", "..", "invalid bearer token"), attack("no header", "."+parts[1]+"."+parts[2], "invalid bearer token"),
				attack("no payload", parts[0]+".."+parts[2], "invalid bearer token"), attack("no signature", parts[0]+"."+parts[1]+".", "invalid signature"),
			},
			authntest.Tampered: tamperings(w.t, parts),
			authntest.Revoked: {
				{Name: "account deleted", Before: w.remove("serviceaccounts", "web", "robot"), Error: `serviceaccounts "robot" not found`},
				{Name: "account deleted and created again", Before: w.change("serviceaccounts", "web", "robot", recreated), Error: "service account UID (another-uid) does not match claim (account-uid)"},
				{Name: "account being deleted for long", Before: w.change("serviceaccounts", "web", "robot", deletedAgo(61*time.Second)), Error: "service account web/robot has been deleted"},
			},
		}}
	return s
}

// tamperings returns attacks that change each part of a token, at its ends and in the middle, in its encoding and in its content.
func tamperings(t *testing.T, parts []string) []authntest.Attack {
	t.Helper()
	var attacks []authntest.Attack
	for n, name := range []string{"header", "payload", "signature"} {
		for part, where := range []string{"begin", "middle", "end"} {
			at := part * (len(parts[n]) - 1) / 2
			changed := append([]string(nil), parts...)
			letter := "A"
			if parts[n][at:at+1] == letter {
				letter = "B"
			}
			changed[n] = parts[n][:at] + letter + parts[n][at+1:]
			attacks = append(attacks, attack(where+" of the "+name, strings.Join(changed, "."), "invalid"))
		}
	}
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	symmetric := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256"}`))
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	other := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(payload), "robot", "admin", -1)))
	return append(attacks,
		attack("algorithm none", none+"."+parts[1]+".", "invalid signature"),
		attack("algorithm none, signed", none+"."+parts[1]+"."+parts[2], "invalid signature"),
		attack("symmetric algorithm", symmetric+"."+parts[1]+"."+parts[2], "invalid signature"),
		attack("another account", parts[0]+"."+other+"."+parts[2], "invalid signature"),
		attack("line break", parts[0]+"."+parts[1]+"."+parts[2][:4]+"\n"+parts[2][4:], "invalid bearer token"),
		attack("fourth part", strings.Join(append(parts, parts[2]), "."), "invalid bearer token"))
}

func between(t *testing.T, encoded, before, after string) string {
	t.Helper()
	decoded, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(decoded), before)
	found, _, ok2 := strings.Cut(rest, after)
	if !ok || !ok2 {
		t.Fatalf("no %s in %s", before, decoded)
	}
	return found
}

func accountToken(t *testing.T) *authntest.Subject {
	return newAccounts(t).subject(authenticationv1.TokenRequestSpec{}, nil)
}

func podToken(t *testing.T) *authntest.Subject {
	w := newAccounts(t)
	s := w.subject(w.boundTo("Pod", "p"), map[string]authenticationv1.ExtraValue{authn.ExtraPodName: {"p"}, authn.ExtraPodUID: {"pod-uid"},
		authn.ExtraNodeName: {"n1"}, authn.ExtraNodeUID: {"node-uid"}})
	s.Bad[authntest.Revoked] = append(s.Bad[authntest.Revoked],
		authntest.Attack{Name: "Pod deleted", Before: w.remove("pods", "web", "p"), Error: "service account token has been invalidated"},
		authntest.Attack{Name: "Pod deleted and created again", Before: w.change("pods", "web", "p", recreated), Error: "pod UID (another-uid) does not match service account pod ref claim (pod-uid)"},
		authntest.Attack{Name: "Pod being deleted for long", Before: w.change("pods", "web", "p", deletedAgo(61*time.Second)), Error: "service account token has been invalidated"})
	return s
}

func secretToken(t *testing.T) *authntest.Subject {
	w := newAccounts(t)
	s := w.subject(w.boundTo("Secret", "s"), nil)
	s.Bad[authntest.Revoked] = append(s.Bad[authntest.Revoked],
		authntest.Attack{Name: "Secret deleted", Before: w.remove("secrets", "web", "s"), Error: "service account token has been invalidated"},
		authntest.Attack{Name: "Secret deleted and created again", Before: w.change("secrets", "web", "s", recreated), Error: "secret UID (another-uid) does not match service account secret ref claim (secret-uid)"})
	return s
}

func nodeToken(t *testing.T) *authntest.Subject {
	w := newAccounts(t)
	s := w.subject(w.boundTo("Node", "n1"), map[string]authenticationv1.ExtraValue{authn.ExtraNodeName: {"n1"}, authn.ExtraNodeUID: {"node-uid"}})
	s.Bad[authntest.Revoked] = append(s.Bad[authntest.Revoked],
		authntest.Attack{Name: "Node deleted", Before: w.remove("nodes", "", "n1"), Error: "service account token has been invalidated"},
		authntest.Attack{Name: "Node deleted and created again", Before: w.change("nodes", "", "n1", recreated), Error: "node UID (another-uid) does not match service account node ref claim (node-uid)"})
	return s
}

func legacyToken(t *testing.T) *authntest.Subject {
	w := newAccounts(t)
	account := w.store.Get(corev1.Resource("serviceaccounts"), "web", "robot").(*corev1.ServiceAccount)
	secret := w.store.Get(corev1.Resource("secrets"), "web", "s").(*corev1.Secret)
	legacy := func(i *serviceaccount.Issuer) string {
		token, err := i.LegacyToken(account, secret)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	token := legacy(w.issuer)
	with := func(change func(*corev1.Secret)) func() {
		return w.change("secrets", "web", "s", func(o metav1.Object) { change(o.(*corev1.Secret)) })
	}
	with(func(s *corev1.Secret) { s.Data = map[string][]byte{"token": []byte(token)} })()
	parts := strings.Split(token, ".")
	return &authntest.Subject{Authenticator: w.auth, Good: func() *http.Request { return authntest.WithToken(token) }, Secrets: append(parts, token),
		User: authn.User{Username: "system:serviceaccount:web:robot", UID: "account-uid", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:web"}},
		Bad: map[authntest.Hazard][]authntest.Attack{
			authntest.WrongKey:      {attack("a key the server does not know", legacy(w.issuerWith(authntest.NewKey(t, elliptic.P256()))), "invalid signature, no keys found")},
			authntest.WrongAudience: {{Name: "reviewed for another", Audiences: []string{"vault"}, Error: `is invalid for the target audiences ["vault"]`}},
			authntest.Tampered:      tamperings(t, parts),
			authntest.Oversized:     {attack("padded", token+strings.Repeat("x", bearer.MaxToken), "bearer token is too long")},
			authntest.Empty:         {attack("no signature", parts[0]+"."+parts[1]+".", "invalid signature")},
			authntest.Revoked: {
				{Name: "Secret deleted", Before: w.remove("secrets", "web", "s"), Error: "Token has been invalidated"},
				{Name: "Secret being deleted", Before: with(func(s *corev1.Secret) { deletedAgo(0)(s) }), Error: "Token has been invalidated"},
				{Name: "Secret with another token", Before: with(func(s *corev1.Secret) { s.Data["token"] = []byte("x") }), Error: "Token does not match server's copy"},
				{Name: "account deleted", Before: w.remove("serviceaccounts", "web", "robot"), Error: `serviceaccounts "robot" not found`},
				{Name: "account deleted and created again", Before: w.change("serviceaccounts", "web", "robot", recreated), Error: "ServiceAccount UID (another-uid) does not match claim (account-uid)"},
				{Name: "account being deleted", Before: w.change("serviceaccounts", "web", "robot", deletedAgo(0)), Error: "ServiceAccount web/robot has been deleted"},
				{Name: "marked invalid", Before: with(func(s *corev1.Secret) {
					s.Labels = map[string]string{"kubernetes.io/legacy-token-invalid-since": "2026-07-01"}
				}), Error: "has been marked invalid"},
			},
		},
		Exempt: map[authntest.Hazard]string{authntest.Expired: "legacy tokens do not expire", authntest.NotYetValid: "legacy tokens have no beginning"},
	}
}
