package identity_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/authn/authntest"
	"skiff/test/program"
)

// TestIssuerBehindAProxy: the program recognizes the tokens of the issuer that its flags name, which only a proxy reaches; of what a file with
// issuers says instead, a change counts without a restart.
func TestIssuerBehindAProxy(t *testing.T) {
	p := authntest.NewProvider(t)
	const host = "example.com" // of the provider's certificate
	_, port, err := net.SplitHostPort(strings.TrimPrefix(p.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	url := "https://" + net.JoinHostPort(host, port)
	p.Handle(authntest.ConfigurationPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"issuer":"`+url+`","jwks_uri":"`+url+authntest.KeysPath+`"}`)
	})
	var connected atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.URL.Host != net.JoinHostPort(host, port) {
			http.Error(w, "not for you", http.StatusForbidden)
			return
		}
		connected.Add(1)
		tunnel(w, net.JoinHostPort("127.0.0.1", port))
	}))
	t.Cleanup(proxy.Close)
	t.Setenv("HTTPS_PROXY", proxy.URL)

	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token := func(name string) string {
		return p.Sign(map[string]any{"iss": url, "sub": name, "aud": "skiff", "exp": time.Now().Add(time.Hour).Unix(), "groups": "people"})
	}
	who := func(dataDir, token string) string {
		review, err := clientOf(t, withToken(configOf(t, dataDir, "admin"), token)).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return err.Error()
		}
		return review.Status.UserInfo.Username + " in " + strings.Join(review.Status.UserInfo.Groups, ",")
	}
	wants := func(dataDir, token, want string) {
		t.Helper()
		got := ""
		for deadline := time.Now().Add(20 * time.Second); got != want && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			got = who(dataDir, token)
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}

	byFlags := filepath.Join(dir, "flags")
	one := program.Start(t, "server", "--no-node", "--data-dir", byFlags, "--port", program.Port(t), "--oidc-issuer-url", url, "--oidc-client-id", "skiff",
		"--oidc-ca-file", file("provider.crt", p.CA), "--oidc-username-prefix", "shop:", "--oidc-groups-claim", "groups")
	one.WaitFor(filepath.Join(byFlags, "admin.kubeconfig"))
	wants(byFlags, token("anna"), "shop:anna in people,system:authenticated")
	if connected.Load() == 0 {
		t.Error("the proxy was not used")
	}

	byFile := filepath.Join(dir, "file")
	none := authntest.Configuration(" []\n")
	configuration := file("authentication.yaml", none)
	two := program.Start(t, "server", "--no-node", "--data-dir", byFile, "--port", program.Port(t), "--authentication-config", configuration)
	two.WaitFor(filepath.Join(byFile, "admin.kubeconfig"))
	wants(byFile, token("bert"), "Unauthorized")
	issuer := strings.Replace(p.Issuer("    audiences: [skiff]\n  claimMappings:\n    username: {expression: \"'file:' + claims.sub\"}\n"), p.URL, url, 1)
	file("authentication.yaml", authntest.Configuration(issuer))
	wants(byFile, token("bert"), "file:bert in system:authenticated")
	file("authentication.yaml", "nonsense")
	wants(byFile, token("carl"), "file:carl in system:authenticated")
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(two.Log(), "failed to reload the authentication config") && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
	}
	if !strings.Contains(two.Log(), "failed to reload the authentication config") {
		t.Error("the log does not say that the file is nonsense")
	}

	code, out, errs := program.Run(t, dir, "server", "--no-node", "--data-dir", filepath.Join(dir, "both"), "--port", program.Port(t), "--authentication-config", configuration, "--oidc-client-id", "skiff")
	if want := "authentication-config file and oidc-* flags are mutually exclusive"; code == 0 || !strings.Contains(errs, want) {
		t.Errorf("code %d: %s%s, want %s", code, out, errs, want)
	}
}

// tunnel copies between the client of a proxy and an address, until one of them ends.
func tunnel(w http.ResponseWriter, address string) {
	to, err := net.Dial("tcp", address)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer to.Close()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	_, _ = io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
	ended := make(chan struct{}, 2)
	for _, copying := range []func(){func() { _, _ = io.Copy(to, buffered) }, func() { _, _ = io.Copy(client, to) }} {
		go func() {
			copying()
			ended <- struct{}{}
		}()
	}
	<-ended
}
