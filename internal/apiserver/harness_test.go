package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver"
	admissionplugins "skiff/internal/apiserver/admission/plugins"
	"skiff/internal/apiserver/authn"
	"skiff/internal/store"
	"skiff/internal/store/memory"
)

// server is an API server on a store in memory, which tests call without a network.
type server struct {
	t     testing.TB
	api   *apiserver.Server
	store store.Store
}

// plugins are off: what was recorded for these tests was recorded without them.
var plugins = slices.DeleteFunc(admissionplugins.On(), func(name string) bool { return name == "NamespaceLifecycle" })

// start starts a server that lives as long as the test.
func start(t testing.TB, change ...func(*apiserver.Options)) *server {
	t.Helper()
	opts := apiserver.Options{Store: memory.New(memory.Options{}), Log: slog.New(slog.DiscardHandler), AdvertiseAddress: "127.0.0.1", Port: 6443, DisableAdmission: plugins}
	for _, c := range change {
		c(&opts)
	}
	api, err := apiserver.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		api.Close()
		opts.Store.Close()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := api.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return &server{t, api, opts.Store}
}

// ServeHTTP serves a request as the administrator's.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.api.ServeHTTP(w, r.WithContext(authn.InProcess(r.Context(), authn.Admin())))
}

// answer is the response to a request of a test.
type answer struct {
	t      testing.TB
	Code   int
	Header http.Header
	Body   []byte
}

// send sends a request. Headers are pairs of name and value.
func (s *server) send(method, path string, body any, headers ...string) answer {
	s.t.Helper()
	return s.sendContext(s.t.Context(), method, path, body, headers...)
}

func (s *server) sendContext(ctx context.Context, method, path string, body any, headers ...string) answer {
	s.t.Helper()
	r := httptest.NewRequestWithContext(ctx, method, path, reader(s.t, body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return answer{s.t, w.Code, w.Header(), w.Body.Bytes()}
}

// reader makes a body of text, bytes, or anything that has a JSON form.
func reader(t testing.TB, body any) io.Reader {
	t.Helper()
	switch b := body.(type) {
	case nil:
		return nil
	case string:
		return strings.NewReader(b)
	case []byte:
		return bytes.NewReader(b)
	case io.Reader:
		return b
	}
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(data)
}

// ok fails the test unless the request succeeded.
func (a answer) ok() answer {
	a.t.Helper()
	if a.Code < 200 || a.Code > 299 {
		a.t.Fatalf("answered %d: %s", a.Code, a.Body)
	}
	return a
}

// into decodes a JSON answer.
func into[T any](a answer) *T {
	a.t.Helper()
	v := new(T)
	if err := json.Unmarshal(a.Body, v); err != nil {
		a.t.Fatalf("answered %d, %v: %s", a.Code, err, a.Body)
	}
	return v
}

// refused checks that the answer is a failure with a proper Status.
func (a answer) refused(code int, reason metav1.StatusReason) *metav1.Status {
	a.t.Helper()
	s := into[metav1.Status](a)
	if a.Code != code || s.Kind != "Status" || s.APIVersion != "v1" || s.Status != metav1.StatusFailure || int(s.Code) != code || s.Reason != reason {
		a.t.Fatalf("answered %d, want %d %s: %s", a.Code, code, reason, a.Body)
	}
	return s
}

// inNamespace returns the path of a namespaced resource of the core group.
func inNamespace(plural string, rest ...string) string {
	return "/api/v1/namespaces/default/" + strings.Join(append([]string{plural}, rest...), "/")
}

type object = map[string]any

// unclosedStore is a store that is not closed with its server.
type unclosedStore struct{ store.Store }

func (unclosedStore) Close() error { return nil }

// configMap returns a small object.
func configMap(name string, data ...string) object {
	values := object{}
	for i := 0; i < len(data); i += 2 {
		values[data[i]] = data[i+1]
	}
	return object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": name}, "data": values}
}
