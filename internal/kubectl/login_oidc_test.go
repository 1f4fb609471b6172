package kubectl

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"sigs.k8s.io/yaml"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authn/authntest"
	"skiff/skifftest"
)

// programVariable says which program the test's binary is when it is run again.
const programVariable = "SKIFF_TEST_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(programVariable) {
	case "kubectl":
		Main()
	case "plugin":
		printToken()
	default:
		os.Exit(m.Run())
	}
}

// printToken is a credential plugin of kubectl, which gets an ID token from the provider that its arguments name.
func printToken() {
	token, err := fetchToken(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	credential := clientauthenticationv1.ExecCredential{TypeMeta: metav1.TypeMeta{APIVersion: "client.authentication.k8s.io/v1", Kind: "ExecCredential"},
		Status: &clientauthenticationv1.ExecCredentialStatus{Token: token}}
	_ = json.NewEncoder(os.Stdout).Encode(credential)
}

func fetchToken(url, caFile string) (string, error) {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return "", err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	answer, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}).Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	token, err := io.ReadAll(answer.Body)
	return string(token), err
}

// TestOIDCLogin: kubectl logs in with tokens of an OpenID Connect provider, which its credential plugin gets. The provider changes its key meanwhile.
func TestOIDCLogin(t *testing.T) {
	p := authntest.NewProvider(t)
	var lifetime atomic.Int64
	lifetime.Store(int64(time.Hour))
	p.Handle("/token", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, p.Sign(map[string]any{"sub": "anna", "aud": "skiff", "groups": []string{"people"}, "exp": time.Now().Add(time.Duration(lifetime.Load())).Unix()}))
	})
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("authentication.yaml", []byte(authntest.Configuration(p.Issuer("    audiences: [skiff]\n  claimMappings:\n    username: {claim: sub, prefix: 'shop:'}\n    groups: {expression: claims.groups}\n"))+
		"anonymous: {enabled: true, conditions: [{path: /livez}]}\n"))
	s := skifftest.Start(t, skifftest.WithServer(func(o *apiserver.Options) { o.Authentication.AuthenticationConfigFile = file }))

	ca := write("provider.crt", []byte(p.CA))
	config, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}},
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": s.URL(), "certificate-authority-data": s.Config().CAData}}},
		"users": []any{map[string]any{"name": "u", "user": map[string]any{"exec": map[string]any{"apiVersion": "client.authentication.k8s.io/v1", "command": os.Args[0],
			"args": []string{p.URL + "/token", ca}, "env": []any{map[string]any{"name": programVariable, "value": "plugin"}}, "interactiveMode": "Never"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := write("kubeconfig", config)
	kubectl := func(args ...string) string {
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), os.Args[0], append(args, "--kubeconfig", kubeconfig)...)
		cmd.Env = append(os.Environ(), programVariable+"=kubectl", "HOME="+dir, "KUBECACHEDIR="+filepath.Join(dir, "cache"))
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return out.String()
	}
	must := func(want string, args ...string) {
		t.Helper()
		if got := kubectl(args...); !strings.Contains(got, want) {
			t.Errorf("kubectl %v: got %s, want %s", args, got, want)
		}
	}
	whoami := []string{"auth", "whoami", "-o", "jsonpath={.status.userInfo}"}
	anna := `{"groups":["people","system:authenticated"],"username":"shop:anna"}`
	for deadline := time.Now().Add(10 * time.Second); kubectl(whoami...) != anna && time.Now().Before(deadline); { // the provider is reached in the background
		time.Sleep(10 * time.Millisecond)
	}
	must(anna, whoami...)
	must(`User "shop:anna" cannot list resource "pods"`, "get", "pods")

	old := p.Sign(map[string]any{"sub": "anna", "aud": "skiff", "exp": time.Now().Add(time.Hour).Unix()})
	p.Rotate("ES256")
	must(anna, whoami...)
	lifetime.Store(-int64(time.Hour))
	must("You must be logged in to the server", "get", "pods")

	withToken := func(token, path string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(s.Config().CAData)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
		defer transport.CloseIdleConnections()
		answer, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	for _, c := range []struct {
		token, path string
		want        int
	}{{old, "/api", 401}, {"", "/livez", 200}, {"", "/healthz", 401}, {"", "/api", 401}, {"", "/livez/", 401}, {"nonsense", "/livez", 401}} {
		if got := withToken(c.token, c.path); got != c.want {
			t.Errorf("%s with the token %.10q: answered %d, want %d", c.path, c.token, got, c.want)
		}
	}
}
