package identity_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
)

const issuer = "https://kubernetes.default.svc.cluster.local"

// accounts is a cluster with a namespace for service accounts.
type accounts struct {
	t      *testing.T
	config *rest.Config
	admin  kubernetes.Interface
	dir    string
}

func newAccounts(t *testing.T) *accounts {
	t.Helper()
	dir := startCluster(t, nil)
	a := &accounts{t: t, dir: dir, config: configOf(t, dir, "admin")}
	a.admin = clientOf(t, a.config)
	newNamespace(t, a.admin, "robots")
	return a
}

// request requests a token of an account.
func (a *accounts) request(account string, spec authenticationv1.TokenRequestSpec) *authenticationv1.TokenRequest {
	a.t.Helper()
	answer, err := a.admin.CoreV1().ServiceAccounts("robots").CreateToken(a.t.Context(), account, &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return answer
}

// pod creates a pod of an account that is bound to no node.
func (a *accounts) pod(name, account string) *corev1.Pod {
	a.t.Helper()
	pod := newPod(name)
	pod.Spec.ServiceAccountName = account
	made, err := a.admin.CoreV1().Pods("robots").Create(a.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return made
}

// as returns a client with a token.
func (a *accounts) as(token string) kubernetes.Interface {
	return clientOf(a.t, withToken(a.config, token))
}

// good reports whether the server accepts the token.
func (a *accounts) good(token string) bool {
	a.t.Helper()
	return accepted(a.t, a.as(token))
}

// accepted sends a request with a token, and reports whether the answer is anything but 401.
func accepted(t *testing.T, c kubernetes.Interface) bool {
	t.Helper()
	_, err := c.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsUnauthorized(err) {
		t.Fatal(err)
	}
	return err == nil
}

func boundTo(kind, name string) *authenticationv1.BoundObjectReference {
	return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name}
}

// TestToken requests a token, checks its claims, and uses it.
func TestToken(t *testing.T) {
	t.Parallel()
	a := newAccounts(t)
	account := newAccount(t, a.admin, "robots", "robot")
	pod := a.pod("p", "robot")
	seconds := int64(1200)
	asked := time.Now()
	audiences := []string{issuer, "vault"}
	answer := a.request("robot", authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds, BoundObjectRef: boundTo("Pod", "p")})
	if left := answer.Status.ExpirationTimestamp.Sub(asked); left < 1195*time.Second || left > 1205*time.Second {
		t.Errorf("ends in %v", left)
	}
	token := answer.Status.Token
	claims := a.verify(token)
	from, until := claims["iat"].(float64), claims["exp"].(float64)
	if claims["iss"] != issuer || claims["sub"] != "system:serviceaccount:robots:robot" || fmt.Sprint(claims["aud"]) != fmt.Sprint(audiences) || until-from != 1200 {
		t.Errorf("says %v", claims)
	}
	bound := fmt.Sprintf("map[namespace:robots pod:map[name:p uid:%s] serviceaccount:map[name:robot uid:%s]]", pod.UID, account.UID)
	if got := fmt.Sprint(claims["kubernetes.io"]); got != bound {
		t.Errorf("is bound to %s, want %s", got, bound)
	}

	who := whoami(t, withToken(a.config, token))
	want := authenticationv1.UserInfo{Username: "system:serviceaccount:robots:robot", UID: string(account.UID),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:robots", "system:authenticated"},
		Extra: map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/pod-name": {"p"}, "authentication.kubernetes.io/pod-uid": {string(pod.UID)},
			"authentication.kubernetes.io/credential-id": {fmt.Sprint("JTI=", claims["jti"])}}}
	if fmt.Sprint(who) != fmt.Sprint(want) {
		t.Errorf("is %v\nwant %v", who, want)
	}

	robot := a.as(token)
	if _, err := robot.CoreV1().ConfigMaps("robots").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("without a role: %v", err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "view"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "robot", Namespace: "robots"}}}
	if _, err := a.admin.RbacV1().RoleBindings("robots").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, "the role is heeded", func() error {
		_, err := robot.CoreV1().ConfigMaps("robots").List(t.Context(), metav1.ListOptions{})
		return err
	})
	if _, err := robot.CoreV1().Secrets("robots").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("read secrets: %v", err)
	}
	if _, err := robot.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("looked into another namespace: %v", err)
	}
}

// TestTokenEnds: a token is refused as soon as the deletion of its object was answered.
func TestTokenEnds(t *testing.T) {
	t.Parallel()
	a := newAccounts(t)
	ctx := t.Context()
	newAccount(t, a.admin, "robots", "robot")
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	const times = 20
	for n := range times {
		name := fmt.Sprintf("p-%d", n)
		a.pod(name, "robot")
		token := a.request("robot", authenticationv1.TokenRequestSpec{BoundObjectRef: boundTo("Pod", name)}).Status.Token
		client := a.as(token)
		if !accepted(t, client) {
			t.Fatal("refused at first")
		}
		if err := a.admin.CoreV1().Pods("robots").Delete(ctx, name, now); err != nil {
			t.Fatal(err)
		}
		if accepted(t, client) {
			t.Error("good after its pod was deleted")
		}
		if a.pod(name, "robot"); accepted(t, client) {
			t.Error("good for another pod of that name")
		}
	}
	for n := range times {
		name := fmt.Sprintf("robot-%d", n)
		newAccount(t, a.admin, "robots", name)
		token := a.request(name, authenticationv1.TokenRequestSpec{}).Status.Token
		client := a.as(token)
		if !accepted(t, client) {
			t.Fatal("refused at first")
		}
		if err := a.admin.CoreV1().ServiceAccounts("robots").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if accepted(t, client) {
			t.Error("good after its account was deleted")
		}
		if newAccount(t, a.admin, "robots", name); accepted(t, client) {
			t.Error("good for another account of that name")
		}
		if !a.good(a.request(name, authenticationv1.TokenRequestSpec{}).Status.Token) {
			t.Error("a token of the new account is refused")
		}
	}
	for _, c := range []struct {
		kind         string
		make, remove func() error
	}{
		{"Secret", func() error {
			_, err := a.admin.CoreV1().Secrets("robots").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bound"}}, metav1.CreateOptions{})
			return err
		}, func() error { return a.admin.CoreV1().Secrets("robots").Delete(ctx, "bound", metav1.DeleteOptions{}) }},
		{"Node", func() error {
			_, err := a.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bound"}}, metav1.CreateOptions{})
			return err
		}, func() error { return a.admin.CoreV1().Nodes().Delete(ctx, "bound", metav1.DeleteOptions{}) }},
	} {
		if err := c.make(); err != nil {
			t.Fatal(err)
		}
		client := a.as(a.request("robot", authenticationv1.TokenRequestSpec{BoundObjectRef: boundTo(c.kind, "bound")}).Status.Token)
		if !accepted(t, client) {
			t.Errorf("bound to a %s: refused at first", c.kind)
		}
		if err := c.remove(); err != nil {
			t.Fatal(err)
		}
		if accepted(t, client) {
			t.Errorf("good after its %s was deleted", c.kind)
		}
	}
}

// TestAudience: a token is valid only for its audiences, also in a TokenReview.
func TestAudience(t *testing.T) {
	t.Parallel()
	a := newAccounts(t)
	newAccount(t, a.admin, "robots", "robot")
	ours := a.request("robot", authenticationv1.TokenRequestSpec{}).Status.Token
	vault := a.request("robot", authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}).Status.Token
	if !a.good(ours) || a.good(vault) {
		t.Errorf("the API takes its own token: %v, the vault's: %v", a.good(ours), a.good(vault))
	}
	for _, c := range []struct {
		token string
		asked []string
		good  []string // nil if the token is refused
	}{
		{ours, nil, []string{issuer}},
		{ours, []string{"vault"}, nil},
		{ours, []string{"vault", issuer}, []string{issuer}},
		{vault, nil, nil},
		{vault, []string{"vault"}, []string{"vault"}},
		{vault, []string{"other"}, nil},
		{vault, []string{"other", "vault"}, []string{"vault"}},
		{"guessed", nil, nil},
	} {
		review, err := a.admin.AuthenticationV1().TokenReviews().Create(t.Context(),
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: c.token, Audiences: c.asked}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s := review.Status
		if s.Authenticated != (c.good != nil) || !slices.Equal(s.Audiences, c.good) || (s.Error == "") != s.Authenticated {
			t.Errorf("asked for %q: %+v, want %q", c.asked, s, c.good)
		}
		if who := s.User.Username; s.Authenticated && who != "system:serviceaccount:robots:robot" || !s.Authenticated && who != "" {
			t.Errorf("asked for %q: is %q", c.asked, who)
		}
	}
}

// TestForgery: tokens that are signed with the cluster's own key, and wrong in one way each, are refused.
func TestForgery(t *testing.T) {
	t.Parallel()
	a := newAccounts(t)
	newAccount(t, a.admin, "robots", "robot")
	real := a.request("robot", authenticationv1.TokenRequestSpec{}).Status.Token
	header, payload := part(t, real, 0), part(t, real, 1)
	file, err := keyutil.PrivateKeyFromFile(filepath.Join(a.dir, "pki", "sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	key := file.(*ecdsa.PrivateKey)
	now := time.Now()
	for _, c := range []struct {
		name   string
		key    *ecdsa.PrivateKey
		change func(header, payload map[string]any)
		good   bool
	}{
		{"nothing", key, func(_, _ map[string]any) {}, true},
		{"another key", newKey(t), func(_, _ map[string]any) {}, false},
		{"ended", key, func(_, p map[string]any) { p["exp"] = now.Add(-time.Minute).Unix() }, false},
		{"not begun", key, func(_, p map[string]any) { p["nbf"] = now.Add(time.Hour).Unix() }, false},
		{"another issuer", key, func(_, p map[string]any) { p["iss"] = "https://elsewhere" }, false},
		{"an unknown key", key, func(h, _ map[string]any) { h["kid"] = "unknown" }, false},
		{"no algorithm", key, func(h, _ map[string]any) { h["alg"] = "none" }, false},
		{"another algorithm", key, func(h, _ map[string]any) { h["alg"] = "HS256" }, false},
		{"another account", key, func(_, p map[string]any) {
			p["kubernetes.io"].(map[string]any)["serviceaccount"].(map[string]any)["uid"] = "other"
		}, false},
	} {
		h, p := maps.Clone(header), clone(t, payload)
		c.change(h, p)
		if got := a.good(forge(t, c.key, h, p)); got != c.good {
			t.Errorf("%s is wrong: accepted %v", c.name, got)
		}
	}
	parts := strings.Split(real, ".")
	payload["sub"] = "system:serviceaccount:kube-system:robot"
	for _, tampered := range []string{real[:len(real)-4] + "AAAA", parts[0] + "." + encode(t, payload) + "." + parts[2], parts[0] + "." + parts[1] + ".",
		strings.Join(parts[:2], "."), real + "." + parts[2], real + strings.Repeat("A", 1<<17)} {
		if a.good(tampered) {
			t.Errorf("accepted %.80s", tampered)
		}
	}
}

// verify verifies a token with nothing but the server's published keys, and returns its claims.
func (a *accounts) verify(token string) map[string]any {
	a.t.Helper()
	var discovered struct {
		Issuer     string   `json:"issuer"`
		Algorithms []string `json:"id_token_signing_alg_values_supported"`
	}
	var set struct {
		Keys []struct{ Kty, Kid, Alg, Use, Crv, X, Y string }
	}
	for path, into := range map[string]any{"/.well-known/openid-configuration": &discovered, "/openid/v1/jwks": &set} {
		// The account itself may read both.
		body, err := a.as(token).Discovery().RESTClient().Get().AbsPath(path).DoRaw(a.t.Context())
		if err != nil {
			a.t.Fatal(err)
		}
		if err := json.Unmarshal(body, into); err != nil {
			a.t.Fatal(err)
		}
	}
	header, claims := part(a.t, token, 0), part(a.t, token, 1)
	if discovered.Issuer != claims["iss"] || !slices.Contains(discovered.Algorithms, header["alg"].(string)) {
		a.t.Errorf("published %+v of %v", discovered, header)
	}
	for _, k := range set.Keys {
		if k.Kid != header["kid"] || k.Alg != header["alg"] {
			continue
		}
		if k.Kty != "EC" || k.Crv != "P-256" || k.Alg != "ES256" || k.Use != "sig" {
			a.t.Fatalf("not a key of the cluster's own kind: %+v", k)
		}
		public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, unbase64(a.t, k.X), unbase64(a.t, k.Y)))
		if err != nil {
			a.t.Fatal(err)
		}
		signed, signature := token[:strings.LastIndex(token, ".")], unbase64(a.t, strings.Split(token, ".")[2])
		if len(signature) != 64 || !ecdsa.Verify(public, digest(signed), new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])) {
			a.t.Error("the signature is wrong")
		}
		return claims
	}
	a.t.Fatalf("no key %v among %+v", header["kid"], set)
	return nil
}

func forge(t *testing.T, key *ecdsa.PrivateKey, header, payload map[string]any) string {
	t.Helper()
	text := encode(t, header) + "." + encode(t, payload)
	r, s, err := ecdsa.Sign(rand.Reader, key, digest(text))
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}
