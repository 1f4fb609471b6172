package subresources

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http/httptest"
	"net/url"
	"testing"

	"skiff/internal/apiserver/request"
	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/verbs"
)

func TestProxiedPath(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/nodes/n/proxy":                         "",
		"/api/v1/nodes/n/proxy/":                        "/",
		"/api/v1/nodes/proxy/proxy/proxy/x":             "/proxy/x",
		"/api/v1/nodes/n/proxy/a//b/../c/":              "/a/c/",
		"/api/v1/namespaces/proxy/pods/proxy/proxy":     "",
		"/api/v1/namespaces/ns/services/s/proxy/x/y":    "/x/y",
		"/api/v1/namespaces/ns/pods/https:p:80/proxy/x": "/x",
	} {
		r := httptest.NewRequest("GET", path, nil)
		if got := proxiedPath(&verbs.Request{Responder: response.Responder{Request: r, Route: request.ParseRoute(r)}}); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// Connections to kubelets are shared as long as this server's certificate and what it trusts stay the same.
func TestCredentialsForKubeletsAreRenewed(t *testing.T) {
	pool := x509.NewCertPool()
	config := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{{Certificate: [][]byte{{1}}}}}
	var problem error
	api := &verbs.API{Shared: response.Shared{Stopping: t.Context()}}
	c := NewConnector(Options{API: api, KubeletTLS: func() (*tls.Config, error) { return config.Clone(), problem }})
	get := func() *kubeletTransports {
		t.Helper()
		k, err := c.currentKubeletTransports()
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	first := get()
	if get() != first {
		t.Error("the same certificate is another")
	}
	if k := first.verified.TLSClientConfig; k.InsecureSkipVerify || k.RootCAs != pool {
		t.Error("kubelets are not verified")
	}
	if k := first.unverified.TLSClientConfig; !k.InsecureSkipVerify || len(k.Certificates) != 1 {
		t.Error("a client that does not want it verified gets it verified, or nothing is shown")
	}
	config.Certificates = []tls.Certificate{{Certificate: [][]byte{{2}}}}
	second := get()
	if second == first {
		t.Error("a new certificate is not used")
	}
	config.RootCAs = x509.NewCertPool()
	if get() == second {
		t.Error("a new authority is not trusted")
	}
	problem = errors.New("no such certificate")
	if _, err := c.currentKubeletTransports(); err == nil {
		t.Error("without a certificate there is one")
	}
}

// TestStreamOptions: the parameters of a connection are its options for webhooks, and what webhooks make of them are its parameters.
func TestStreamOptions(t *testing.T) {
	for _, c := range []struct{ subresource, query, want string }{
		{"exec", "stdin=true&tty=0&stdout=1&container=c&command=a&command=b%20c", "command=a&command=b+c&container=c&stdin=true&stdout=true"},
		{"exec", "", ""},
		{"attach", "stderr=true&tty=true&container=x&command=ignored", "container=x&stderr=true&tty=true"},
		{"portforward", "ports=80,81&ports=82&ports=bad", "ports=80&ports=81&ports=82"},
	} {
		query, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		if got := parametersOf(streamOptions(c.subresource, query)).Encode(); got != c.want {
			t.Errorf("%s?%s: got %s, want %s", c.subresource, c.query, got, c.want)
		}
	}
}
