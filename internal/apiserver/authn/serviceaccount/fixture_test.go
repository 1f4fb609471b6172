package serviceaccount

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"skiff/internal/apiserver/authn/jws"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog"
)

const issuerURL = "https://issuer.example"

var (
	start           = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	serverAudiences = []string{issuerURL, "api"}
)

// fixture is a server with a service account robot in web, its Pod p on node n1, and Secret s.
type fixture struct {
	*store
	clock *clocktesting.FakePassiveClock
	notes *notes
	key   *ecdsa.PrivateKey
	*Issuer
	*Authenticator
}

// store is an objects.Store whose cache can lack resources and whose reads and writes can fail.
type store struct {
	*objectstest.Store
	hidden  map[string]bool // the resources that the cache has not observed
	failing error
	gets    int
	fresh   int
}

func (s *store) Get(resource schema.GroupResource, namespace, name string) catalog.Object {
	s.gets++
	if s.hidden[resource.Resource] {
		return nil
	}
	return s.Store.Get(resource, namespace, name)
}

func (s *store) Fresh(ctx context.Context, resource schema.GroupResource, namespace, name string) (catalog.Object, error) {
	s.fresh++
	if s.failing != nil {
		return nil, s.failing
	}
	return s.Store.Fresh(ctx, resource, namespace, name)
}

func (s *store) Update(ctx context.Context, resource schema.GroupResource, subresource, namespace, name string, change func(catalog.Object) error) error {
	if s.failing != nil {
		return s.failing
	}
	return s.Store.Update(ctx, resource, subresource, namespace, name, change)
}

type notes struct {
	warnings    []string
	annotations map[string]string
}

func (n *notes) Warn(_ context.Context, text string) { n.warnings = append(n.warnings, text) }
func (n *notes) Annotate(_ context.Context, key, value string) {
	n.annotations[key] = value
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jws.NewSigner(key)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := NewKeys(crypto.PublicKey(key.Public()))
	if err != nil {
		t.Fatal(err)
	}
	w := &fixture{store: &store{Store: objectstest.New()}, clock: clocktesting.NewFakePassiveClock(start), notes: &notes{annotations: map[string]string{}}, key: key}
	w.Issuer = &Issuer{Issuer: issuerURL, Audiences: serverAudiences, Signer: signer, ExtendExpiration: true, Objects: w.store, Clock: w.clock, Notes: w.notes}
	w.Authenticator = NewAuthenticator(Config{Issuers: []string{issuerURL}, Audiences: serverAudiences, Keys: keys, Lookup: true, Objects: w.store, Clock: w.clock, Notes: w.notes,
		Log: slog.New(slog.DiscardHandler)})
	meta := func(namespace, name, uid string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}
	}
	w.Put(corev1.Resource("serviceaccounts"), &corev1.ServiceAccount{ObjectMeta: meta("web", "robot", "account-uid")})
	w.Put(corev1.Resource("nodes"), &corev1.Node{ObjectMeta: meta("", "n1", "node-uid")})
	w.Put(corev1.Resource("pods"), &corev1.Pod{ObjectMeta: meta("web", "p", "pod-uid"), Spec: corev1.PodSpec{ServiceAccountName: "robot", NodeName: "n1"}})
	w.Put(corev1.Resource("secrets"), &corev1.Secret{ObjectMeta: meta("web", "s", "secret-uid"), Type: corev1.SecretTypeServiceAccountToken})
	return w
}

func (w *fixture) request(t testing.TB, spec authenticationv1.TokenRequestSpec) *authenticationv1.TokenRequest {
	t.Helper()
	answer, err := w.Request(context.Background(), "web", "robot", &authenticationv1.TokenRequest{Spec: spec}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// legacyToken puts a legacy token into the Secret.
func (w *fixture) legacyToken(t testing.TB) string {
	t.Helper()
	account := w.Store.Get(corev1.Resource("serviceaccounts"), "web", "robot").(*corev1.ServiceAccount)
	secret := w.Store.Get(corev1.Resource("secrets"), "web", "s").DeepCopyObject().(*corev1.Secret)
	token, err := w.LegacyToken(account, secret)
	if err != nil {
		t.Fatal(err)
	}
	secret.Data = map[string][]byte{corev1.ServiceAccountTokenKey: []byte(token)}
	w.Put(corev1.Resource("secrets"), secret)
	return token
}

func boundTo(kind, name string) authenticationv1.TokenRequestSpec {
	return authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name}}
}

func lasting(spec authenticationv1.TokenRequestSpec, seconds int64) authenticationv1.TokenRequestSpec {
	spec.ExpirationSeconds = &seconds
	return spec
}

func payload(t testing.TB, token string) string {
	t.Helper()
	decoded, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	return string(decoded)
}

var errBroken = errors.New("the store is broken")
