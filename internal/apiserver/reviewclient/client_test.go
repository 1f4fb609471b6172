package reviewclient_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/cert"

	"skiff/internal/apiserver/reviewclient"
)

type object = map[string]any

// kubeconfig writes a kubeconfig for a server and a user.
func kubeconfig(t *testing.T, cluster, user object) string {
	t.Helper()
	text, err := json.Marshal(object{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": []any{object{"name": "c", "context": object{"cluster": "s", "user": "u"}}},
		"clusters": []any{object{"name": "s", "cluster": cluster}}, "users": []any{object{"name": "u", "user": user}}})
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "kubeconfig", text)
}

func write(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCredentials: the server learns who calls as the kubeconfig says.
func TestCredentials(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var names []string
		for _, c := range r.TLS.PeerCertificates {
			names = append(names, c.Subject.CommonName)
		}
		fmt.Fprintf(w, "%s %s %v", r.URL, r.Header.Get("Authorization"), names)
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	certificate, key, err := cert.GenerateSelfSignedCertKey("caller", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	withPassword := strings.Replace(s.URL, "https://", "https://joe:secret@", 1)
	for _, c := range []struct {
		name, url string
		user      object
		want      string
	}{
		{"nobody", s.URL, object{}, "/?timeout=7s  []"},
		{"a path", s.URL + "/a/b/?x=y", object{}, "/a/b?timeout=7s  []"},
		{"a token", s.URL, object{"token": "abc"}, "/?timeout=7s Bearer abc []"},
		{"a token's file", s.URL, object{"tokenFile": write(t, "token", []byte("def\n"))}, "/?timeout=7s Bearer def []"},
		{"a password", s.URL, object{"username": "joe", "password": "secret"}, "/?timeout=7s Basic am9lOnNlY3JldA== []"},
		{"a password in the URL", withPassword, object{}, "/?timeout=7s Basic am9lOnNlY3JldA== []"},
		{"a certificate", s.URL, object{"client-certificate-data": certificate, "client-key-data": key}, "/?timeout=7s  [caller@"},
		{"a certificate's files", s.URL, object{"client-certificate": write(t, "crt", certificate), "client-key": write(t, "key", key)}, "/?timeout=7s  [caller@"},
	} {
		client, err := reviewclient.New(reviewclient.Options{Kubeconfig: kubeconfig(t, object{"server": c.url, "certificate-authority-data": ca}, c.user), Timeout: 7 * time.Second})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if body, code, err := client.Post(t.Context(), []byte("{}")); err != nil || code != 200 || !strings.HasPrefix(string(body), c.want) {
			t.Errorf("%s: %d %s %v, want %s", c.name, code, body, err, c.want)
		}
		client.Close()
	}
	for name, path := range map[string]string{
		"no file":        filepath.Join(t.TempDir(), "none"),
		"no kubeconfig":  write(t, "text", []byte("hello")),
		"no server":      kubeconfig(t, object{"server": "https://%"}, object{}),
		"no certificate": kubeconfig(t, object{"server": s.URL, "certificate-authority-data": []byte("hello")}, object{}),
		"no key":         kubeconfig(t, object{"server": s.URL}, object{"client-certificate-data": certificate, "client-key-data": []byte("hello")}),
	} {
		if _, err := reviewclient.New(reviewclient.Options{Kubeconfig: path}); err == nil {
			t.Errorf("%s: a client was made", name)
		}
	}
	client, err := reviewclient.New(reviewclient.Options{Kubeconfig: kubeconfig(t, object{"server": withPassword}, object{})})
	if err != nil {
		t.Fatal(err)
	}
	var unknown x509.UnknownAuthorityError
	if _, _, err := client.Post(t.Context(), nil); !errors.As(err, &unknown) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a server of another authority: %v", err)
	}
}

// TestKeptConnection: a call over a connection that the server has closed meanwhile is repeated.
func TestKeptConnection(t *testing.T) {
	var calls atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		fmt.Fprint(w, "{}")
	}))
	t.Cleanup(s.Close)
	var connection net.Conn
	client, err := reviewclient.New(reviewclient.Options{Kubeconfig: kubeconfig(t, object{"server": s.URL}, object{}), Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		connection = c
		return c, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 3 {
		if _, _, err := client.Post(t.Context(), []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if err := connection.(*net.TCPConn).CloseWrite(); err != nil { // the server closes it, too
			t.Fatal(err)
		}
	}
	if n := calls.Load(); n != 3 {
		t.Errorf("%d calls", n)
	}
}

func TestRetry(t *testing.T) {
	reset := fmt.Errorf("calling: %w", &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)})
	for _, c := range []struct {
		name  string
		errs  []error
		calls int
		took  time.Duration // at least, and at most twice that
	}{
		{"a success", []error{nil}, 1, 0},
		{"for good", []error{errors.New("no"), nil}, 1, 0},
		{"forbidden", []error{apierrors.NewForbidden(schema.GroupResource{}, "x", nil), nil}, 1, 0},
		{"a reset", []error{reset, nil}, 2, 500 * time.Millisecond},
		{"broken twice", []error{apierrors.NewInternalError(errors.New("x")), apierrors.NewTimeoutError("x", 0), nil}, 3, 1250 * time.Millisecond},
		{"all the time", []error{reset}, 5, 4 * time.Second},
		{"later", []error{apierrors.NewTooManyRequests("x", 9), nil}, 2, 9 * time.Second},
		{"much later", []error{apierrors.NewTooManyRequests("x", 9000), nil}, 2, 30 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, calls := time.Now(), 0
			err := reviewclient.Retry(t.Context(), reviewclient.DefaultBackoff(), func() error {
				calls++
				return c.errs[min(calls, len(c.errs))-1]
			})
			if took := time.Since(began); calls != c.calls || err != c.errs[min(calls, len(c.errs))-1] || took < c.took || took > 2*c.took {
				t.Errorf("%s: %d calls, %v, %v; want %d, %v", c.name, calls, took, err, c.calls, c.took)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			calls, began = 0, time.Now()
			_ = reviewclient.Retry(ctx, reviewclient.DefaultBackoff(), func() error { calls++; return reset })
			if calls != 1 || time.Since(began) != 100*time.Millisecond {
				t.Errorf("%d calls within %v, for a request that ends after 100 ms", calls, time.Since(began))
			}
		})
	}
}

// FuzzDecode: no response crashes the server, and one of another kind is an error.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"Status","status":"Failure","code":403}`))
	f.Add([]byte(`{"kind":"Pod"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var into struct {
			Kind string `json:"kind"`
		}
		if err := reviewclient.Decode(body, schema.GroupVersionKind{Version: "v1", Kind: "Status"}, &into); err == nil && into.Kind != "" && into.Kind != "Status" {
			t.Errorf("%q was taken for a Status", body)
		}
	})
}
