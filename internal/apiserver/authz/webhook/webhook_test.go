package webhook_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	api "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/authz/webhook"
	"skiff/internal/apiserver/reviewclient"
)

// server is a webhook's server.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	answer http.HandlerFunc
}

// newServer starts a server that answers by answer, with what it was asked in the request's body again.
func newServer(t testing.TB, answer http.HandlerFunc) *server {
	t.Helper()
	s := &server{answer: answer}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.bodies = append(s.bodies, string(body))
		answer := s.answer
		s.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// asked returns what the server was asked, in order.
func (s *server) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.bodies...)
}

// becomes replaces how the server answers.
func (s *server) becomes(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// status answers with a status in JSON.
func status(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":%s}`, text)
	}
}

// text answers with a code and a body.
func text(code int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// kubeconfig writes a kubeconfig for the server and returns its path.
func (s *server) kubeconfig(t testing.TB) string {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	config, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "s", "user": "u"}}},
		"clusters": []any{map[string]any{"name": "s", "cluster": map[string]any{"server": s.URL + "/authorize", "certificate-authority-data": ca}}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": "of-the-api-server"}}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// fixture is a webhook's authorizer with what a test looks at.
type fixture struct {
	*webhook.Authorizer
	server   *server
	clock    *clocktesting.FakeClock
	registry *prometheus.Registry
}

// newAuthorizer returns an authorizer that asks the server and caches nothing.
func newAuthorizer(t testing.TB, s *server, timeout time.Duration, change ...func(*webhook.Options)) *fixture {
	t.Helper()
	client, err := reviewclient.New(reviewclient.Options{Kubeconfig: s.kubeconfig(t), Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	f := &fixture{server: s, clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)), registry: prometheus.NewRegistry()}
	o := webhook.Options{Name: "hook", Client: client, Version: "v1", Backoff: wait.Backoff{Duration: time.Millisecond, Steps: 3}, Metrics: webhook.NewMetrics(f.registry),
		Clock: f.clock, Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&o)
	}
	if f.Authorizer, err = webhook.New(o); err != nil {
		t.Fatal(err)
	}
	return f
}

// metric returns the values of a metric, by its labels.
func (f *fixture) metric(t *testing.T, name string) map[string]float64 {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "apiserver_authorization_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			values[strings.Join(labels, " ")] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

var pods = &authz.Attributes{User: &authn.User{Username: "jane", UID: "7", Groups: []string{"a", "b"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}},
	Verb: "list", Resource: true, Version: "v1", Plural: "pods", Namespace: "ns"}

// TestQuestion: what the webhook is asked, in both versions.
func TestQuestion(t *testing.T) {
	s := newServer(t, status(`{"allowed":true}`))
	s.becomes(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() != "/authorize?timeout=10s" || r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer of-the-api-server" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
		}
		_, _ = io.WriteString(w, `{"status":{"allowed":true}}`)
	})
	for _, c := range []struct {
		name, version, want string
		change              func(*authz.Attributes)
	}{
		{"a list", "v1", `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"resourceAttributes":{"namespace":"ns","verb":"list","version":"v1","resource":"pods"},` +
			`"user":"jane","groups":["a","b"],"extra":{"k":["v"]},"uid":"7"},"status":{"allowed":false}}`, func(*authz.Attributes) {}},
		{"a list", "v1beta1", `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1","metadata":{},"spec":{"resourceAttributes":{"namespace":"ns","verb":"list","version":"v1","resource":"pods"},` +
			`"user":"jane","group":["a","b"],"extra":{"k":["v"]},"uid":"7"},"status":{"allowed":false}}`, func(*authz.Attributes) {}},
		{"selectors", "v1", `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"resourceAttributes":{"verb":"list","group":"apps","version":"v1","resource":"deployments",` +
			`"fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["b,c"]},{"key":"d","operator":"NotIn","values":[""]}]},` +
			`"labelSelector":{"requirements":[{"key":"e","operator":"In","values":["f","g"]},{"key":"h","operator":"Exists"},{"key":"i","operator":"DoesNotExist"},{"key":"j","operator":"NotIn","values":["k"]}]}}},"status":{"allowed":false}}`,
			func(a *authz.Attributes) {
				a.User, a.Namespace, a.Group, a.Plural = nil, "", "apps", "deployments"
				a.FieldSelector, a.LabelSelector = `a=b\,c,d!=`, "e in (g,f),h,!i,j!=k,m>3"
			}},
		{"selectors", "v1beta1", `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1","metadata":{},"spec":{"resourceAttributes":{"namespace":"ns","verb":"list","version":"v1","resource":"pods",` +
			`"fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]}]}},"user":"jane","group":["a","b"],"extra":{"k":["v"]},"uid":"7"},"status":{"allowed":false}}`,
			func(a *authz.Attributes) { a.FieldSelector, a.LabelSelector = "a==b", "(" }},
		{"a path", "v1", `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"nonResourceAttributes":{"path":"/logs","verb":"get"},"user":"x"},"status":{"allowed":false}}`,
			func(a *authz.Attributes) {
				*a = authz.Attributes{User: &authn.User{Username: "x"}, Verb: "get", Path: "/logs"}
			}},
		{"a subresource", "v1beta1", `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1","metadata":{},"spec":{"resourceAttributes":{"namespace":"ns","verb":"create","version":"v1","resource":"pods","subresource":"exec","name":"p"},` +
			`"user":"jane","group":["a","b"],"extra":{"k":["v"]},"uid":"7"},"status":{"allowed":false}}`, func(a *authz.Attributes) { a.Verb, a.Subresource, a.Name = "create", "exec", "p" }},
	} {
		f := newAuthorizer(t, s, 10*time.Second, func(o *webhook.Options) { o.Version = c.version })
		at := *pods
		c.change(&at)
		if decision, _, err := f.Authorize(t.Context(), &at); decision != authz.Allow || err != nil {
			t.Fatal(decision, err)
		}
		asked := s.asked()
		if diff := cmp.Diff(c.want, asked[len(asked)-1]); diff != "" {
			t.Errorf("%s, %s:\n%s", c.name, c.version, diff)
		}
	}
	if _, err := webhook.New(webhook.Options{Version: "v2"}); errText(err) != `unsupported webhook authorizer version "v2", supported versions are "v1", "v1beta1"` {
		t.Error(err)
	}
}

// TestResponses: every response that a server may send, under both failure policies.
func TestResponses(t *testing.T) {
	hanging := make(chan struct{})
	t.Cleanup(func() { close(hanging) })
	elsewhere := newServer(t, status(`{"allowed":true}`))
	for _, c := range []struct {
		name     string
		answer   http.HandlerFunc
		decision authz.Decision
		reason   string
		err      string // "" if the answer is a good one
		calls    int    // 1 if 0
		result   string // in the metrics
	}{
		{name: "allowed", answer: status(`{"allowed":true,"reason":"why not"}`), decision: authz.Allow, reason: "why not", result: "success"},
		{name: "denied", answer: status(`{"allowed":false,"denied":true,"reason":"no"}`), decision: authz.Deny, reason: "no", result: "success"},
		{name: "no opinion", answer: status(`{"allowed":false,"reason":"unknown"}`), reason: "unknown", result: "success"},
		{name: "no status", answer: text(200, `{}`), result: "success"},
		{name: "created", answer: text(201, `{"status":{"allowed":true}}`), decision: authz.Allow, result: "success"},
		{name: "an unknown field", answer: status(`{"allowed":true,"allowedBy":"me"}`), decision: authz.Allow, result: "success"},

		{name: "nothing", answer: text(200, ""), err: "0-length response with status code: 200 and content type: ", result: "error"},
		{name: "no JSON", answer: text(200, "<html>hello</html>"), err: "couldn't get version/kind; json parse error: invalid character '<'", result: "error"},
		{name: "cut off", answer: text(200, `{"status":{"allowed":true`), err: "couldn't get version/kind; json parse error: unexpected end of JSON input", result: "error"},
		{name: "another type", answer: status(`{"allowed":"true"}`), err: "cannot unmarshal string", result: "error"},
		{name: "another case", answer: text(200, `{"Status":{"Allowed":true}}`), result: "success"},
		{name: "another kind", answer: text(200, `{"apiVersion":"v1","kind":"Pod","status":{"allowed":true}}`),
			err: `expected a SubjectAccessReview of authorization.k8s.io/v1 in the response, got kind "Pod" of apiVersion "v1"`, result: "error"},
		{name: "another version", answer: text(200, `{"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","status":{"allowed":true}}`),
			err: `got kind "SubjectAccessReview" of apiVersion "authorization.k8s.io/v1beta1"`, result: "error"},
		{name: "a success that is a Status", answer: text(200, `{"apiVersion":"v1","kind":"Status","status":"Success"}`), err: `got kind "Status" of apiVersion "v1"`, result: "error"},
		{name: "null", answer: text(200, "null"), result: "success"},
		{name: "a list", answer: text(200, "[]"), err: "cannot unmarshal array", result: "error"},
		{name: "a huge answer", answer: func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
					return
				}
			}
		}, err: "the response body is larger than 1048576 bytes", result: "error"},
		{name: "huge headers", answer: text(200, `{"status":{"allowed":true}}`, "X", strings.Repeat("x", 128<<10)), err: "server response headers exceeded", result: "error"},
		{name: "a redirect", answer: text(307, "", "Location", elsewhere.URL), err: "the server responded with the status code 307 but did not return more information", result: "error"},
		{name: "another redirect", answer: text(302, "", "Location", elsewhere.URL), err: "the server responded with the status code 302", result: "error"},
		{name: "not found", answer: text(404, "404 page not found", "Content-Type", "text/plain"), err: "the server could not find the requested resource", result: "error"},
		{name: "unauthorized", answer: text(401, "who are you"), err: "the server has asked for the client to provide credentials", result: "error"},
		{name: "forbidden, with a Status", answer: text(403, `{"apiVersion":"v1","kind":"Status","status":"Failure","message":"not you","reason":"Forbidden","code":403}`), err: "not you", result: "error"},
		{name: "broken", answer: text(500, "oops"), err: "an error on the server (\"oops\") has prevented the request from succeeding", calls: 3, result: "error"},
		{name: "overloaded", answer: text(429, "slow down"), err: "the server has received too many requests and has asked us to try again later", calls: 3, result: "error"},
		{name: "a gateway's timeout", answer: text(504, "late"), err: "the server was unable to return a response in the time allotted", calls: 3, result: "timeout"},
		{name: "away", answer: text(503, "away"), err: "the server is currently unable to handle the request", result: "error"},
		{name: "away for a while", answer: text(503, "away", "Retry-After", "1"), err: "the server is currently unable to handle the request", calls: 2, result: "error"},
		{name: "the connection is closed", answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, err: "EOF", result: "error"},
		{name: "it hangs", answer: func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-hanging:
			case <-r.Context().Done():
			}
		}, err: "context deadline exceeded", result: "timeout"},
		{name: "it hangs in the middle", answer: func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"status":`)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-hanging:
			case <-r.Context().Done():
			}
		}, err: "unexpected error when reading response body. Please retry. Original error: context deadline exceeded", result: "timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, denies := range []bool{false, true} {
				s := newServer(t, c.answer)
				timeout := 20 * time.Second
				if strings.HasPrefix(c.name, "it hangs") {
					timeout = 50 * time.Millisecond
				}
				steps := max(c.calls, 3)
				if c.calls == 2 {
					steps = 2
				}
				f := newAuthorizer(t, s, timeout, func(o *webhook.Options) {
					o.DenyOnError, o.Backoff.Steps, o.AuthorizedTTL, o.UnauthorizedTTL = denies, steps, time.Hour, time.Hour
				})
				want, failedOpen := c.decision, 0.0
				if c.err != "" && denies {
					want = authz.Deny
				} else if c.err != "" {
					failedOpen = 1
				}
				decision, reason, err := f.Authorize(t.Context(), pods)
				if decision != want || reason != c.reason || (err == nil) != (c.err == "") || !strings.Contains(errText(err), c.err) {
					t.Errorf("%v %q %v, want %v %q %s", decision, reason, err, want, c.reason, c.err)
				}
				calls := max(c.calls, 1)
				if n := len(s.asked()); n != calls {
					t.Errorf("the server was asked %d times, want %d", n, calls)
				}
				if n := f.metric(t, "webhook_evaluations_total")["hook "+c.result]; n != float64(calls) {
					t.Errorf("counted %v", f.metric(t, "webhook_evaluations_total"))
				}
				if n := f.metric(t, "webhook_evaluations_fail_open_total")["hook "+c.result]; n != failedOpen {
					t.Errorf("%v failures counted as open", n)
				}
				if c.err != "" { // an error is not cached
					s.becomes(status(`{"allowed":true}`))
					if decision, _, err := f.Authorize(t.Context(), pods); decision != authz.Allow || err != nil {
						t.Errorf("after a failure: %v, %v", decision, err)
					}
				}
			}
		})
	}
	t.Cleanup(func() {
		if len(elsewhere.asked()) > 0 {
			t.Error("a redirect was followed")
		}
	})
}

// TestAllowedAndDenied: an answer that says both denies.
func TestAllowedAndDenied(t *testing.T) {
	f := newAuthorizer(t, newServer(t, status(`{"allowed":true,"denied":true,"reason":"both"}`)), time.Minute)
	decision, reason, err := f.Authorize(t.Context(), pods)
	if decision != authz.Deny || reason != "both" || errText(err) != "webhook subject access review returned both allow and deny response" {
		t.Errorf("%v %q %v", decision, reason, err)
	}
}

// TestNobodyListens: a server that is gone, or has another certificate, fails without being tried again.
func TestNobodyListens(t *testing.T) {
	s := newServer(t, status(`{"allowed":true}`))
	f := newAuthorizer(t, s, time.Minute, func(o *webhook.Options) { o.DenyOnError = true })
	s.Close()
	if decision, _, err := f.Authorize(t.Context(), pods); decision != authz.Deny || !strings.Contains(errText(err), "connection refused") {
		t.Errorf("%v, %v", decision, err)
	}
	other := newServer(t, status(`{"allowed":true}`))
	other.TLS.Certificates = []tls.Certificate{selfSigned(t)}
	f = newAuthorizer(t, other, time.Minute, func(o *webhook.Options) { o.DenyOnError = true })
	if decision, _, err := f.Authorize(t.Context(), pods); decision != authz.Deny || !strings.Contains(errText(err), "certificate signed by unknown authority") {
		t.Errorf("%v, %v", decision, err)
	}
	if n := len(other.asked()); n > 0 {
		t.Errorf("a server with another certificate was asked %d times", n)
	}
}

// TestCanceled: a request whose client is gone does not count as allowed by failure.
func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := newServer(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	s.becomes(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	f := newAuthorizer(t, s, time.Minute)
	if decision, _, err := f.Authorize(ctx, pods); decision != authz.NoOpinion || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", decision, err)
	}
	if m := f.metric(t, "webhook_evaluations_total"); m["hook canceled"] != 1 {
		t.Error(m)
	}
	if m := f.metric(t, "webhook_evaluations_fail_open_total"); len(m) > 0 {
		t.Error(m)
	}
}

// TestCache: answers are cached by all of the question, for as long as their kind is, and not if they or the request are too large.
func TestCache(t *testing.T) {
	for _, c := range []struct {
		name, status             string
		authorized, unauthorized time.Duration
		change                   func(*authz.Attributes)
		lasts                    time.Duration
	}{
		{"allowed", `{"allowed":true}`, time.Minute, 0, nil, time.Minute},
		{"allowed, not cached", `{"allowed":true}`, 0, time.Minute, nil, 0},
		{"denied", `{"denied":true,"allowed":false}`, time.Hour, time.Minute, nil, time.Minute},
		{"no opinion", `{"allowed":false}`, time.Hour, time.Second, nil, time.Second},
		{"nothing cached", `{"allowed":false}`, 0, 0, nil, 0},
		{"a long name", `{"allowed":true}`, time.Minute, time.Minute, func(a *authz.Attributes) { a.Name = strings.Repeat("x", 10000) }, 0},
		{"a name that is not too long", `{"allowed":true}`, time.Minute, time.Minute, func(a *authz.Attributes) { a.Name = strings.Repeat("x", 9000) }, time.Minute},
		{"a long reason", `{"allowed":true,"reason":"` + strings.Repeat("x", 3000) + `"}`, time.Minute, time.Minute, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, status(c.status))
			f := newAuthorizer(t, s, time.Minute, func(o *webhook.Options) { o.AuthorizedTTL, o.UnauthorizedTTL = c.authorized, c.unauthorized })
			at := *pods
			if c.change != nil {
				c.change(&at)
			}
			ask := func() int {
				first, reason, err := f.Authorize(t.Context(), &at)
				if err != nil {
					t.Fatal(err)
				}
				again, reasonAgain, err := f.Authorize(t.Context(), &at)
				if first != again || reason != reasonAgain || err != nil {
					t.Errorf("%v %q, then %v %q %v", first, reason, again, reasonAgain, err)
				}
				return len(s.asked())
			}
			if n := ask(); c.lasts == 0 && n != 2 || c.lasts > 0 && n != 1 {
				t.Fatalf("asked %d times", n)
			}
			if c.lasts == 0 {
				return
			}
			f.clock.Step(c.lasts - time.Millisecond)
			if n := ask(); n != 1 {
				t.Errorf("asked again before %v", c.lasts)
			}
			f.clock.Step(2 * time.Millisecond)
			if n := ask(); n != 2 {
				t.Errorf("asked %d times after %v", n, c.lasts)
			}
		})
	}
	t.Run("another question", func(t *testing.T) {
		s := newServer(t, status(`{"allowed":true}`))
		f := newAuthorizer(t, s, time.Minute, func(o *webhook.Options) { o.AuthorizedTTL = time.Hour })
		for i, change := range []func(*authz.Attributes){
			func(*authz.Attributes) {}, func(a *authz.Attributes) { a.User = &authn.User{Username: "joe"} }, func(a *authz.Attributes) { a.User = &authn.User{Username: "jane"} },
			func(a *authz.Attributes) { a.Verb = "get" }, func(a *authz.Attributes) { a.Group = "g" }, func(a *authz.Attributes) { a.Version = "v2" }, func(a *authz.Attributes) { a.Plural = "nodes" },
			func(a *authz.Attributes) { a.Subresource = "log" }, func(a *authz.Attributes) { a.Name = "n" }, func(a *authz.Attributes) { a.Namespace = "m" },
			func(a *authz.Attributes) { a.FieldSelector = "a=b" }, func(a *authz.Attributes) { a.LabelSelector = "a=b" }, func(a *authz.Attributes) { a.LabelSelector = "a!=b" },
			func(a *authz.Attributes) { a.Resource, a.Path = false, "/ns" },
		} {
			at := *pods
			change(&at)
			for range 2 {
				if _, _, err := f.Authorize(t.Context(), &at); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(s.asked()); n != i+1 {
				t.Errorf("question %d: asked %d times", i, n)
			}
		}
	})
}

// conditions compiles match conditions.
func conditions(t testing.TB, expressions ...string) *authorizationcel.CELMatcher {
	t.Helper()
	var given []api.WebhookMatchCondition
	for _, e := range expressions {
		given = append(given, api.WebhookMatchCondition{Expression: e})
	}
	compiled, errs := validation.ValidateAndCompileMatchConditions(authorizationcel.NewDefaultCompiler(), given)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return compiled
}

// TestConditions: a false condition excludes a request whatever fails beside it; one that fails counts as the webhook's failure.
func TestConditions(t *testing.T) {
	for _, c := range []struct {
		name        string
		expressions []string
		asked       bool
		err         string
	}{
		{"true", []string{"request.user == 'jane'", "request.resourceAttributes.namespace == 'ns' && request.groups == ['a', 'b'] && request.extra['k'] == ['v'] && request.uid == '7'"}, true, ""},
		{"false", []string{"true", "request.resourceAttributes.resource == 'nodes'"}, false, ""},
		{"of paths", []string{"has(request.resourceAttributes) && !has(request.nonResourceAttributes)"}, true, ""},
		{"an error", []string{"request.nonResourceAttributes.path == '/x'", "true"}, false, "cel evaluation error: expression 'request.nonResourceAttributes.path == '/x'' resulted in error: no such key: nonResourceAttributes"},
		{"false beside an error", []string{"request.nonResourceAttributes.path == '/x'", "false"}, false, ""},
		{"of a selector", []string{"request.resourceAttributes.labelSelector.requirements.exists(r, r.key == 'team' && r.operator == 'In' && r.values == ['x'])"}, true, ""},
		{"too expensive", []string{"[1,2,3,4,5,6,7,8,9,10].all(a, " + strings.Repeat("[1,2,3,4,5,6,7,8,9,10].all(b, ", 8) + "request.user != 'b'" + strings.Repeat(")", 9)}, false, "cost limit exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, denies := range []bool{false, true} {
				s := newServer(t, status(`{"allowed":true}`))
				f := newAuthorizer(t, s, time.Minute, func(o *webhook.Options) { o.Conditions, o.DenyOnError = conditions(t, c.expressions...), denies })
				at := *pods
				at.LabelSelector = "team=x"
				want := authz.NoOpinion
				switch {
				case c.asked:
					want = authz.Allow
				case c.err != "" && denies:
					want = authz.Deny
				}
				decision, _, err := f.Authorize(t.Context(), &at)
				if decision != want || (err == nil) != (c.err == "") || !strings.Contains(errText(err), c.err) || len(s.asked()) > 0 != c.asked {
					t.Errorf("%v, %v, asked %d times; want %v, %s", decision, err, len(s.asked()), want, c.err)
				}
				excluded, failed := 0.0, 0.0
				if !c.asked && c.err == "" {
					excluded = 1
				}
				if strings.Contains(c.name, "error") || c.err != "" {
					failed = 1
				}
				if f.metric(t, "match_condition_exclusions_total")["hook Webhook"] != excluded || f.metric(t, "match_condition_evaluation_errors_total")["hook Webhook"] != failed ||
					f.metric(t, "match_condition_evaluation_seconds")["hook Webhook"] != 1 {
					t.Errorf("counted %v, %v, %v", f.metric(t, "match_condition_exclusions_total"), f.metric(t, "match_condition_evaluation_errors_total"), f.metric(t, "match_condition_evaluation_seconds"))
				}
			}
		})
	}
}

func TestRules(t *testing.T) {
	f := newAuthorizer(t, newServer(t, status(`{"allowed":true}`)), time.Minute)
	rules, err := f.RulesFor(t.Context(), pods.User, "ns")
	if !rules.Incomplete || len(rules.Resources)+len(rules.Others) > 0 || errText(err) != "webhook authorizer does not support user rule resolution" {
		t.Errorf("%v, %v", rules, err)
	}
}

// BenchmarkCached is a request whose answer is in the cache.
func BenchmarkCached(b *testing.B) {
	s := newServer(b, status(`{"allowed":true}`))
	f := newAuthorizer(b, s, time.Minute, func(o *webhook.Options) { o.AuthorizedTTL, o.Clock = time.Hour, clock.RealClock{} })
	b.ReportAllocs()
	for b.Loop() {
		if decision, _, err := f.Authorize(b.Context(), pods); decision != authz.Allow {
			b.Fatal(decision, err)
		}
	}
	if n := len(s.asked()); n != 1 {
		b.Fatalf("asked %d times", n)
	}
}

// BenchmarkCondition is a request that a match condition excludes.
func BenchmarkCondition(b *testing.B) {
	f := newAuthorizer(b, newServer(b, status(`{"allowed":true}`)), time.Minute, func(o *webhook.Options) {
		o.Conditions = conditions(b, "has(request.resourceAttributes)", "!('a' in request.groups)")
	})
	b.ReportAllocs()
	for b.Loop() {
		if decision, _, err := f.Authorize(b.Context(), pods); decision != authz.NoOpinion || err != nil {
			b.Fatal(decision, err)
		}
	}
}

// selfSigned returns a certificate that nothing has signed but itself.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
