package client_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/webhook/client"
)

// whoServer is an HTTPS server for some names, which answers how a request was authenticated.
func whoServer(t *testing.T, names []string) (s *httptest.Server, ca []byte) {
	ca, key, err := cert.GenerateSelfSignedCertKey(names[0], nil, names)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(ca, key)
	if err != nil {
		t.Fatal(err)
	}
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := "nobody"
		if user, password, ok := r.BasicAuth(); ok {
			who = user + ":" + password
		} else if token := r.Header.Get("Authorization"); token != "" {
			who = token
		} else if certificates := r.TLS.PeerCertificates; len(certificates) > 0 {
			who = "the certificate of " + certificates[0].DNSNames[0]
		}
		if user := r.Header.Get("Impersonate-User"); user != "" {
			who += " as " + user
		}
		_, _ = io.WriteString(w, who)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, ca
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const kubeconfig = `
apiVersion: v1
kind: Config
contexts: [{name: c, context: {cluster: "", user: somebody}}]
users:
- {name: exact.example.com, user: {token: exact}}
- {name: "port.example.com:8443", user: {token: port}}
- {name: "*.example.com", user: {tokenFile: token}}
- {name: "*.com", user: {token: com}}
- {name: "*.example.net:8443", user: {username: u, password: p, as: other}}
- {name: cert.example.org, user: {client-certificate: crt, client-key: key}}
- {name: both.example.org, user: {token: t, username: u, password: p}}
- {name: provider.example.org, user: {auth-provider: {name: oidc}}}
- {name: svc.ns.svc, user: {token: service}}
- {name: "*.ns.svc:8443", user: {token: service port}}
- {name: somebody, user: {token: current}}
`

// TestCredentials: a server is called as the user that is named after it or a domain that it is in, or else as the user of the current context.
func TestCredentials(t *testing.T) {
	names := []string{"exact.example.com", "port.example.com", "a.b.example.com", "example.com", "a.example.net", "cert.example.org", "both.example.org",
		"provider.example.org", "other.example.org", "svc.ns.svc", "other.ns.svc"}
	s, ca := whoServer(t, names)
	certificate, key, err := cert.GenerateSelfSignedCertKey("client", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write(t, path("crt"), string(certificate))
	write(t, path("key"), string(key))
	write(t, path("token"), "from a file\n")
	write(t, path("kubeconfig"), kubeconfig)
	write(t, path("with-current"), kubeconfig+"current-context: c\n")
	write(t, path("with-any"), kubeconfig+"- {name: \"*\", user: {token: any}}\ncurrent-context: c\n")
	// Every name and port leads to the server.
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.Listener.Addr().String())
	}
	resolve := func(_ context.Context, _, name string, _ int32) (string, error) { return name + ":1", nil }
	for _, c := range []struct {
		file   string
		config admissionregistrationv1.WebhookClientConfig
		want   string
	}{
		{"kubeconfig", toURL("https://exact.example.com/x"), "Bearer exact"},
		{"kubeconfig", toURL("https://exact.example.com:443"), "Bearer exact"},
		{"kubeconfig", toURL("https://exact.example.com:8443"), "nobody"},
		{"kubeconfig", toURL("https://port.example.com:8443"), "Bearer port"},
		{"kubeconfig", toURL("https://port.example.com"), "Bearer from a file"},
		{"kubeconfig", toURL("https://a.b.example.com"), "Bearer from a file"},
		{"kubeconfig", toURL("https://example.com"), "Bearer com"},
		{"kubeconfig", toURL("https://a.example.net:8443"), "u:p as other"},
		{"kubeconfig", toURL("https://a.example.net"), "nobody"},
		{"kubeconfig", toURL("https://cert.example.org"), "the certificate of client"},
		{"kubeconfig", toURL("https://both.example.org"), "error: username/password or bearer token may be set, but not both"},
		{"kubeconfig", toURL("https://provider.example.org"), "error: auth provider not supported"},
		{"kubeconfig", toService("svc", nil), "Bearer service"},
		{"kubeconfig", toService("svc", ptr.To[int32](8443)), "Bearer service port"},
		{"kubeconfig", toService("other", nil), "nobody"},
		{"with-current", toURL("https://other.example.org"), "Bearer current"},
		{"with-any", toService("other", nil), "Bearer any"},
		{"", toURL("https://exact.example.com"), "nobody"},
	} {
		var credentials *client.Credentials
		if c.file != "" {
			if credentials, err = client.ReadCredentials(path(c.file)); err != nil {
				t.Fatal(err)
			}
		}
		pool := client.NewPool(resolve, dial, credentials)
		c.config.CABundle = ca
		e, urlPath, err := pool.Acquire(&c.config)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := e.Post(within(t, 10*time.Second), urlPath, body)
		got := string(answer)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want {
			t.Errorf("%s, %+v: %s, want %s", c.file, c.config.Service, got, c.want)
		}
		pool.Release(e)
		pool.Close()
	}
}

// TestMissingToken: a file of a token that is missing fails calls until it is there.
func TestMissingToken(t *testing.T) {
	s, ca := whoServer(t, []string{"exact.example.svc"})
	dir := t.TempDir()
	write(t, filepath.Join(dir, "kubeconfig"), `{apiVersion: v1, kind: Config, users: [{name: "*", user: {tokenFile: token}}]}`)
	credentials, err := client.ReadCredentials(filepath.Join(dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	pool := client.NewPool(func(context.Context, string, string, int32) (string, error) { return s.Listener.Addr().String(), nil }, nil, credentials)
	config := admissionregistrationv1.WebhookClientConfig{CABundle: ca, Service: &admissionregistrationv1.ServiceReference{Namespace: "example", Name: "exact"}}
	e, path, err := pool.Acquire(&config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Release(e)
	_, err = e.Post(within(t, 10*time.Second), path, body)
	admissiontest.Expect(t, err, "open "+filepath.Join(dir, "token")+": no such file or directory")
	write(t, filepath.Join(dir, "token"), "late")
	if answer, err := e.Post(within(t, 10*time.Second), path, body); err != nil || string(answer) != "Bearer late" {
		t.Errorf("%s, %v", answer, err)
	}
}

func toURL(url string) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{URL: &url}
}

func toService(name string, port *int32) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "ns", Name: name, Port: port}}
}
