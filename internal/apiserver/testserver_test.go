package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission/plugins"
	"skiff/internal/apiserver/authn"
	authnconfig "skiff/internal/apiserver/authn/config"
	"skiff/internal/store/memory"
)

// testServer is a server on a store in memory, with a namespace "test".
type testServer struct {
	*Server
	t testing.TB
}

func newTestServer(t testing.TB, edits ...func(*Options)) *testServer {
	t.Helper()
	m := memory.New(memory.Options{})
	opts := Options{Store: m, AdvertiseAddress: "192.0.2.1", Port: 6443, DisableAdmission: slices.DeleteFunc(plugins.On(), func(name string) bool { return name == "NamespaceLifecycle" }),
		Authentication: authnconfig.Options{MoreTokens: authn.Tokens{authn.ForServer([]string{"here"}, func(_ context.Context, token string) (*authn.User, error) {
			if token != testToken {
				return nil, errors.New("invalid bearer token")
			}
			return authn.Admin(), nil
		})}}}
	for _, edit := range edits {
		edit(&opts)
	}
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		_ = m.Close()
	})
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	server := &testServer{s, t}
	server.must("POST", "/api/v1/namespaces", `{"metadata":{"name":"test"}}`)
	return server
}

// do sends a request. A PATCH is a merge patch; headers come in pairs.
func (s *testServer) do(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+testToken)
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// must sends a request that has to succeed, and returns the answer.
func (s *testServer) must(method, path, body string) string {
	s.t.Helper()
	w := s.do(method, path, body)
	if w.Code >= 300 {
		s.t.Fatalf("%s %s %s: %d %s", method, path, body, w.Code, w.Body)
	}
	return w.Body.String()
}

// expect sends a request and compares code and message of the Status that comes back.
func (s *testServer) expect(code int, message, method, path, body string) metav1.Status {
	s.t.Helper()
	w := s.do(method, path, body)
	var status metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
		s.t.Errorf("%s %s %s: %d %q", method, path, body, w.Code, w.Body)
		return status
	}
	if w.Code != code || status.Message != message {
		s.t.Errorf("%s %s %s\ngot  %d %s\nwant %d %s", method, path, body, w.Code, status.Message, code, message)
	}
	return status
}

func (s *testServer) get(path string, into any) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.must("GET", path, "")), into); err != nil {
		s.t.Fatal(err)
	}
}

const (
	testToken = "secret"
	testPods  = "/api/v1/namespaces/test/pods"
	success   = ""
)

// pod creates a pod with one container, of the given labels and with more of a spec.
func (s *testServer) pod(name, app, spec string) {
	s.t.Helper()
	s.must("POST", testPods, `{"metadata":{"name":"`+name+`","labels":{"app":"`+app+`"}},"spec":{"containers":[{"name":"c","image":"i"}]`+spec+`}}`)
}

// running makes a pod look as if it ran.
func (s *testServer) running(name, ready string) {
	s.t.Helper()
	s.must("PATCH", testPods+"/"+name+"/status", `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"`+ready+`"}]}}`)
}
