package identity_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"skiff/test/program"
)

// use sends a request with a bearer token.
func (v *secretTracker) use(where, token string, want int) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, v.host+"/api/v1/pods", nil)
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	v.do(v.nobody, r, where, want)
}

// plantBootstrapTokens authenticates with bootstrap tokens, most of them invalid.
func (v *secretTracker) plantBootstrapTokens() {
	v.t.Helper()
	for i, c := range []struct {
		where, more string // more is further data of the Secret
		want        int
	}{
		{"a bootstrap token", `"usage-bootstrap-authentication":"true"`, 403},
		{"a bootstrap token for other uses", `"usage-bootstrap-signing":"true"`, 401},
		{"a bootstrap token that has ended", `"usage-bootstrap-authentication":"true","expiration":"2020-01-01T00:00:00Z"`, 401},
		{"a bootstrap token without a good end", `"usage-bootstrap-authentication":"true","expiration":"soon"`, 401},
		{"a bootstrap token with a wrong group", `"usage-bootstrap-authentication":"true","auth-extra-groups":"system:masters"`, 401},
	} {
		secret, id := strings.ToLower(rand.Text())[:16], fmt.Sprintf("plant%d", i)
		v.remember(c.where, secret)
		v.send(v.admin, attempt{"a Secret beside " + c.where, "POST", "/api/v1/namespaces/kube-system/secrets", 201, asJSON,
			fmt.Sprintf(`{"metadata":{"name":"bootstrap-token-%s"},"type":"bootstrap.kubernetes.io/token",
				"stringData":{"token-id":%q,"token-secret":%q,%s,"description":"SECRET"}}`, id, id, secret, c.more), nil})
		// A list that is up to date means that the cache is, which is asked for these.
		v.send(v.admin, attempt{"a look at Secrets", "GET", "/api/v1/namespaces/kube-system/secrets", 200, "", "", nil})
		v.use(c.where, id+"."+secret, c.want)
		v.use("a guess at "+c.where, id+"."+v.plant("a guess at " + c.where)[:16], 401)
	}
}

// plantAccountTokens uses bound and legacy service account tokens, valid and invalid ones.
func (v *secretTracker) plantAccountTokens(dataDir string, config *rest.Config) {
	v.t.Helper()
	t, ctx := v.t, v.t.Context()
	admin := clientOf(t, config)
	account := newAccount(t, admin, "default", "planted")
	token := func(where string, spec authenticationv1.TokenRequestSpec) string {
		answer, err := admin.CoreV1().ServiceAccounts("default").CreateToken(ctx, "planted", &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		v.remember(where, answer.Status.Token)
		return answer.Status.Token
	}
	good := token("a token", authenticationv1.TokenRequestSpec{})
	v.use("a token", good, 403)
	v.use("a token for others", token("a token for others", authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}), 401)

	file, err := keyutil.PrivateKeyFromFile(filepath.Join(dataDir, "pki", "sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	key := file.(*ecdsa.PrivateKey)
	changed := func(where string, change func(map[string]any)) {
		payload := part(t, good, 1)
		change(payload)
		forged := forge(t, key, part(t, good, 0), payload)
		v.remember(where, forged)
		v.use(where, forged, 401)
	}
	changed("a token that has ended", func(p map[string]any) { p["exp"] = 1 })
	changed("a token that has not begun", func(p map[string]any) { p["nbf"] = time.Now().Add(time.Hour).Unix() })
	changed("a token of another account", func(p map[string]any) {
		p["kubernetes.io"].(map[string]any)["serviceaccount"].(map[string]any)["uid"] = "other"
	})
	changed("a token whose claims are of the wrong kind", func(p map[string]any) { p["exp"] = "planted" })

	old := func(secret string) string {
		return forge(t, key, part(t, good, 0), map[string]any{"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:default:planted",
			"kubernetes.io/serviceaccount/namespace": "default", "kubernetes.io/serviceaccount/secret.name": secret,
			"kubernetes.io/serviceaccount/service-account.name": "planted", "kubernetes.io/serviceaccount/service-account.uid": account.UID})
	}
	keep := func(name, token string, labels map[string]string) {
		of := map[string]string{"kubernetes.io/service-account.name": "planted"}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: of},
			Type: corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{"token": []byte(token)}}
		if _, err := admin.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	legacy, invalid, other := old("legacy"), old("invalid"), old("other")
	for where, token := range map[string]string{"a legacy token": legacy, "a legacy token that is invalid": invalid, "a legacy token that is not in its Secret": other} {
		v.remember(where, token)
	}
	keep("legacy", legacy, nil)
	keep("invalid", invalid, map[string]string{"kubernetes.io/legacy-token-invalid-since": "2020-01-01"})
	keep("other", legacy, nil)
	v.use("a legacy token", legacy, 403)
	v.use("a legacy token that is invalid", invalid, 401)
	v.use("a legacy token that is not in its Secret", other, 401)
	v.use("a legacy token without a Secret", old("none"), 401)

	ca := clusterCA(t, dataDir, "ca").impostor()
	pair := ca.certify("kubernetes-admin", time.Hour, masters)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.host+"/api/v1/pods", nil)
	if err != nil {
		t.Fatal(err)
	}
	v.do(showing(t, config, &pair), r, "a certificate of another authority", 401)
}

// TestBadTokenFile: the error about an invalid token file names the line, and not its content.
func TestBadTokenFile(t *testing.T) {
	for name, text := range map[string]string{
		"too few columns": "SECRET,u\n", "a stray quote": "SECRET,u,1,\"a\nSECRET\",b\",2\n", "an open quote": "SECRET,u,1,\"SECRET",
	} {
		secret := strings.ToLower(rand.Text())
		file := filepath.Join(t.TempDir(), "tokens.csv")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "SECRET", secret)), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errs := program.Run(t, t.TempDir(), "server", "-v", "4", "--no-node", "--data-dir", t.TempDir(), "--port", program.Port(t), "--token-auth-file", file)
		if code == 0 || strings.Contains(out+errs, secret[:piece]) || !strings.Contains(errs, "token") {
			t.Errorf("%s: code %d: %s%s", name, code, out, errs)
		}
	}
}
