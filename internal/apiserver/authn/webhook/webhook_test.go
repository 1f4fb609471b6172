package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"skiff/internal/apiserver/authn/webhook"
)

func kubeconfig(t testing.TB, url string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: url, InsecureSkipTLSVerify: true}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "server-token"}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// hook returns an authenticator that asks handle, with its attempts at once.
func hook(t testing.TB, version string, audiences []string, steps int, handle http.HandlerFunc) *webhook.Authenticator {
	t.Helper()
	s := httptest.NewTLSServer(handle)
	t.Cleanup(s.Close)
	a, err := webhook.New(kubeconfig(t, s.URL+"/a/b"), version, audiences, wait.Backoff{Steps: steps, Duration: time.Microsecond, Factor: 1})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestWire: what is sent, and what is made of the answer, in both versions.
func TestWire(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1"} {
		var got, answer string
		a := hook(t, version, []string{"api", "more"}, 1, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got = r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization") + " " + r.Header.Get("Content-Type") + " " + strings.TrimSpace(string(body))
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"apiVersion":"authentication.k8s.io/%s","kind":"TokenReview","status":%s}`, version, answer)
		})
		for _, c := range []struct {
			name, answer, want string
			audiences          []string
		}{
			{"a user", `{"authenticated":true,"user":{"username":"anna","uid":"7","groups":["a"],"extra":{"x":["y"]}}}`, `{"username":"anna","uid":"7","groups":["a"],"extra":{"x":["y"]}} [api more]`, nil},
			{"for some audiences", `{"authenticated":true,"user":{"username":"anna"},"audiences":["more","other"]}`, `{"username":"anna"} [more]`, nil},
			{"reviewed for some", `{"authenticated":true,"user":{"username":"anna"},"audiences":["other"]}`, `{"username":"anna"} [other]`, []string{"x", "other"}},
			{"reviewed for others, by a server that knows of none", `{"authenticated":true,"user":{"username":"anna"}}`, "nobody", []string{"other"}},
			{"for others", `{"authenticated":true,"user":{"username":"anna"},"audiences":["other"]}`, "nobody", nil},
			{"nobody", `{"authenticated":false}`, "nobody", nil},
			{"nobody, with a user", `{"user":{"username":"anna"}}`, "nobody", nil},
			{"an error", `{"error":"no such token"}`, "error: no such token", nil},
			{"a user and an error", `{"authenticated":true,"user":{"username":"anna"},"error":"ignored"}`, `{"username":"anna"} [api more]`, nil},
		} {
			answer = c.answer
			if who := ask(a, "sesame", c.audiences); who != c.want {
				t.Errorf("%s, %s: got %s, want %s", version, c.name, who, c.want)
			}
			audiences := `["api","more"]`
			if c.audiences != nil {
				audiences = fmt.Sprintf(`["%s"]`, strings.Join(c.audiences, `","`))
			}
			want := fmt.Sprintf(`{"kind":"TokenReview","apiVersion":"authentication.k8s.io/%s","metadata":{},"spec":{"token":"sesame","audiences":%s},"status":{"user":{}}}`, version, audiences)
			if prefix := "POST /a/b Bearer server-token application/json "; got != prefix+want {
				t.Errorf("%s, %s: sent %s, want %s", version, c.name, got, prefix+want)
			}
		}
	}
}

func ask(a *webhook.Authenticator, token string, audiences []string) string {
	user, valid, err := a.AuthenticateToken(context.Background(), token, audiences)
	switch {
	case err != nil:
		return "error: " + err.Error()
	case user == nil:
		return "nobody"
	}
	encoded, err := json.Marshal(user)
	if err != nil {
		return "error: " + err.Error()
	}
	return fmt.Sprintf("%s %v", encoded, valid)
}

// TestRetries: what is likely to pass is tried again, as often as the back-off says; the rest is not.
func TestRetries(t *testing.T) {
	for _, c := range []struct {
		code, want int
		header     string
	}{{500, 3, ""}, {504, 3, ""}, {429, 3, ""}, {400, 1, ""}, {401, 1, ""}, {403, 1, ""}, {404, 1, ""}, {503, 1, ""}} {
		var asked atomic.Int32
		a := hook(t, "v1", nil, 3, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			http.Error(w, "no", c.code)
		})
		if who := ask(a, "sesame", nil); !strings.HasPrefix(who, "error: ") || strings.Contains(who, "sesame") {
			t.Errorf("%d: got %s", c.code, who)
		}
		if got := int(asked.Load()); got != c.want {
			t.Errorf("%d: asked %d times, want %d", c.code, got, c.want)
		}
	}
	var asked atomic.Int32
	a := hook(t, "v1", nil, 3, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) < 3 {
			http.Error(w, "not yet", http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":true,"user":{"username":"anna"}}}`)
	})
	if who := ask(a, "sesame", nil); who != `{"username":"anna"} []` {
		t.Errorf("got %s", who)
	}
}

// TestNonsense: answers that are none are errors that do not contain the token.
func TestNonsense(t *testing.T) {
	for name, answer := range map[string]string{
		"nothing": "", "no JSON": "{", "another kind": `{"apiVersion":"v1","kind":"Pod"}`, "a list": "[]", "large": `{"kind":"` + strings.Repeat("x", 2<<20),
		"another version": `{"apiVersion":"authentication.k8s.io/v9","kind":"TokenReview","status":{"authenticated":true,"user":{"username":"anna"}}}`,
	} {
		a := hook(t, "v1", nil, 1, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer)
		})
		if who := ask(a, "sesame", nil); !strings.HasPrefix(who, "error: ") || strings.Contains(who, "sesame") {
			t.Errorf("%s: got %s", name, who)
		}
	}
}

func TestBadConfiguration(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, version, want string }{
		{kubeconfig(t, "https://a"), "v2", `unsupported authentication webhook version "v2", supported versions are "v1", "v1beta1"`},
		{bad + ".none", "v1", "no such file"},
		{bad, "v1", "error loading config file"},
		{kubeconfig(t, ""), "v1", "invalid configuration"},
	} {
		if _, err := webhook.New(c.path, c.version, nil, wait.Backoff{Steps: 1}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// FuzzAnswer: an answer authenticates only if it says so.
func FuzzAnswer(f *testing.F) {
	var answer atomic.Pointer[[]byte]
	a := hook(f, "v1", []string{"api"}, 1, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(*answer.Load())
	})
	f.Add([]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":true,"user":{"username":"anna"},"audiences":["api"]}}`))
	f.Add([]byte(`{"apiVersion":"authentication.k8s.io/v1beta1","kind":"TokenReview","status":{"authenticated":true,"user":{"username":"anna","extra":{"":null}}}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Status","status":"Failure"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		answer.Store(&body)
		user, valid, err := a.AuthenticateToken(t.Context(), "sesame", nil)
		if user != nil && (err != nil || !strings.Contains(string(body), "true") || len(valid) != 1 || valid[0] != "api") {
			t.Fatalf("%s is %v, %v, %v", body, user, valid, err)
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	a := hook(b, "v1", []string{"api"}, 1, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":true,"user":{"username":"anna"}}}`)
	})
	b.ReportAllocs()
	for b.Loop() {
		_, _, _ = a.AuthenticateToken(b.Context(), "sesame", nil)
	}
}
