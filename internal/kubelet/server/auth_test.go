package server_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apitest"
	"skiff/internal/cluster/pki"
	"skiff/internal/kubelet/server"
)

func newDelete() *metav1.DeleteOptions { return &metav1.DeleteOptions{} }

// ask asks the kubelet itself.
func (n *node) ask(method, path, token string, certificates ...tls.Certificate) (int, string) {
	n.t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: n.pool, Certificates: certificates}, DisableKeepAlives: true}
	rq, err := http.NewRequestWithContext(n.t.Context(), method, "https://"+n.address+path, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	if token != "" {
		rq.Header.Set("Authorization", "Bearer "+token)
	}
	rs, err := transport.RoundTrip(rq)
	if err != nil {
		n.t.Fatal(err)
	}
	defer rs.Body.Close()
	body, err := io.ReadAll(rs.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return rs.StatusCode, string(body)
}

// allow gives a user the right to get parts of nodes.
func (n *node) allow(user string, resources ...string) {
	n.t.Helper()
	n.allowTo("get", user, resources...)
}

// allowTo gives a user the right to a verb on parts of nodes.
func (n *node) allowTo(verb, user string, resources ...string) {
	n.t.Helper()
	name := "test-" + user
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: resources, Verbs: []string{verb}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}}}
	api := n.api.Client().RbacV1()
	if _, err := api.ClusterRoles().Create(n.t.Context(), role, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	if _, err := api.ClusterRoleBindings().Create(n.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	_, subresource, _ := strings.Cut(resources[0], "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource}}}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) { // until the API knows: the kubelet keeps a refusal
		got, err := n.api.Client().AuthorizationV1().SubjectAccessReviews().Create(n.t.Context(), review, metav1.CreateOptions{})
		switch {
		case err != nil:
			n.t.Fatal(err)
		case got.Status.Allowed:
			return
		case time.Now().After(deadline):
			n.t.Fatalf("%s is never allowed to %s %v", user, verb, resources)
		}
	}
}

func (n *node) client(user string, groups ...string) tls.Certificate {
	return n.issue(pki.Leaf{Name: "test", Authority: pki.CA, User: user, Groups: groups, Client: true})
}

func TestWhoMayCome(t *testing.T) {
	n := start(t)
	strangers, err := pki.NewAuthority(pki.CA, now(), hour)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := strangers.Issue(pki.Leaf{Name: "test", Authority: pki.CA, User: "admin", Groups: []string{"system:masters"}, Client: true}, now(), hour)
	if err != nil {
		t.Fatal(err)
	}
	serving := n.issue(pki.NodeLeaves("n", "127.0.0.1")[1]) // which is not for clients
	n.allow("metrics-reader", "nodes/metrics", "nodes/stats")
	n.allow("pod-reader", "nodes/pods")
	n.allow("proxy-user", "nodes/proxy")
	token := n.api.ConfigFor("metrics-reader").BearerToken
	for _, test := range []struct {
		name         string
		path, token  string
		certificates []tls.Certificate
		code         int
		body         string
	}{
		{"nobody", "/pods", "", nil, 401, "Unauthorized"},
		{"an unknown token", "/pods", "unknown", nil, 401, "Unauthorized"},
		{"another authority's certificate", "/pods", "", []tls.Certificate{stranger}, 401, "Unauthorized"},
		{"a server's certificate", "/pods", "", []tls.Certificate{serving}, 401, "Unauthorized"},
		{"a bad certificate and a good token", "/metrics", token, []tls.Certificate{stranger}, 200, ""},
		{"an administrator", "/pods", "", []tls.Certificate{n.client("root", "system:masters")}, 200, ""},
		{"an administrator's token", "/pods", n.api.Config().BearerToken, nil, 200, ""},
		{"the API server", "/runningpods/", "", []tls.Certificate{n.client("kube-apiserver-kubelet-client")}, 200, ""},
		{"somebody", "/pods", "", []tls.Certificate{n.client("somebody")}, 403, "Forbidden (user=somebody, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"},
		{"who may read metrics", "/metrics/resource", token, nil, 200, ""},
		{"and statistics", "/stats/summary", token, nil, 200, ""},
		{"but not logs", "/logs/", token, nil, 403, "Forbidden (user=metrics-reader, verb=get, resource=nodes, subresource(s)=[log])\n"},
		{"nor pods", "/pods", token, nil, 403, "Forbidden (user=metrics-reader, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"},
		{"nor run commands", "/exec/default/p/c?output=1", token, nil, 403, "Forbidden (user=metrics-reader, verb=create, resource=nodes, subresource(s)=[proxy])\n"},
		{"not by a detour either", "/metrics/../pods", token, nil, 403, ""},
		{"who may read pods", "/pods", "", []tls.Certificate{n.client("pod-reader")}, 200, ""},
		{"who may use the proxy", "/configz", "", []tls.Certificate{n.client("proxy-user")}, 200, ""},
		{"but not for metrics", "/metrics", "", []tls.Certificate{n.client("proxy-user")}, 403, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			n.t = t
			code, body := n.ask("GET", test.path, test.token, test.certificates...)
			if code/100 == 3 { // to the way without detours
				code, body = n.ask("GET", "/pods", test.token, test.certificates...)
			}
			if code != test.code || test.body != "" && body != test.body {
				t.Errorf("%d %q, want %d %q", code, body, test.code, test.body)
			}
		})
	}
	n.t = t
}

// TestStreamsTakeCreate has the right to get nodes/proxy not be the right to run commands, although WebSockets begin with GET.
func TestStreamsTakeCreate(t *testing.T) {
	n := start(t)
	n.run("p")
	n.allow("reader", "nodes/proxy")
	n.allowTo("create", "operator", "nodes/proxy")
	reader, operator := n.client("reader"), n.client("operator")
	for _, path := range []string{"/exec/default/p/c?output=1&command=ls", "/attach/default/p/c?output=1", "/portForward/default/p?port=80", "/run/default/p/c?cmd=ls"} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			code, body := n.ask(method, path, "", reader)
			if want := "Forbidden (user=reader, verb=create, resource=nodes, subresource(s)=[proxy])\n"; code != 403 || method != "HEAD" && body != want {
				t.Errorf("%s %s: %d %q", method, path, code, body)
			}
			if code, body := n.ask(method, path, "", operator); code == 403 || code == 401 {
				t.Errorf("who may create: %s %s: %d %q", method, path, code, body)
			}
		}
	}
	if code, _ := n.ask("GET", "/configz", "", reader); code != 200 {
		t.Errorf("reading: %d", code)
	}
	if code, _ := n.ask("GET", "/configz", "", operator); code != 403 {
		t.Errorf("who may only create: %d", code)
	}
}

// TestUnknownTokensAreLimited floods the kubelet with tokens that the API does not know: few of them get there, and who is known is served.
func TestUnknownTokensAreLimited(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	n := startWith(t, apitest.WithServer(func(o *apiserver.Options) {
		o.Seen = func(rq *http.Request, a *authz.Attributes) {
			mu.Lock()
			defer mu.Unlock()
			asked[a.Plural]++
		}
	}), nil)
	known := n.api.Config().BearerToken
	if code, body := n.ask("GET", "/healthz", known); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	began := time.Now()
	const clients, each = 8, 50
	var flood sync.WaitGroup
	for client := range clients {
		flood.Go(func() {
			for i := range each {
				code, body := n.ask("GET", "/healthz", fmt.Sprintf("unknown-%d-%d", client, i))
				if code != 401 && code != 429 {
					t.Errorf("%d %s", code, body)
				}
			}
		})
	}
	flood.Wait()
	mu.Lock()
	reviews := asked["tokenreviews"] - 1 // of the known one
	mu.Unlock()
	if most := 20 + int(5*time.Since(began).Seconds()) + 1; reviews > most || reviews < 20 {
		t.Errorf("the API was asked about %d of %d unknown tokens, want at least 20 and at most %d", reviews, clients*each, most)
	}
	if code, body := n.ask("GET", "/healthz", known); code != 200 {
		t.Errorf("who is known: %d %s", code, body)
	}
}

// TestKnownTokensAreNotLimited has many clients of one source come at once whose tokens the API knows.
func TestKnownTokensAreNotLimited(t *testing.T) {
	n := start(t)
	for i := range 60 {
		if code, _ := n.ask("GET", "/healthz", n.api.ConfigFor(fmt.Sprint("user-", i)).BearerToken); code != 403 {
			t.Fatalf("client %d: %d", i, code)
		}
	}
}

// The API is asked once, however many come, and its answer is kept.
func TestAnswersAreKept(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	n := startWith(t, apitest.WithServer(func(o *apiserver.Options) {
		o.Seen = func(rq *http.Request, a *authz.Attributes) {
			if strings.HasSuffix(rq.URL.Path, "reviews") {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, a.User.Username+" "+a.Plural)
			}
		}
	}), nil)
	token := n.api.Config().BearerToken
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			if code, body := n.ask("GET", "/healthz", token); code != 200 {
				t.Errorf("%d %s", code, body)
			}
		})
	}
	clients.Wait()
	for range 3 {
		n.ask("GET", "/healthz", token)
		n.ask("GET", "/healthz", "bad")
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(asked)
	if want := []string{"system:node:n subjectaccessreviews", "system:node:n tokenreviews", "system:node:n tokenreviews"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

func TestAnonymous(t *testing.T) {
	n := startWith(t, nil, func(o *server.Options) { o.Anonymous = true })
	if code, body := n.ask("GET", "/healthz", ""); code != 403 || !strings.HasPrefix(body, "Forbidden (user=system:anonymous,") {
		t.Errorf("%d %q", code, body)
	}
	if code, _ := n.ask("GET", "/healthz", "bad"); code != 401 {
		t.Errorf("who claims to be somebody is not anybody: %d", code)
	}
	n.allow("system:anonymous", "nodes/healthz")
	// An answer that was no holds for a while.
	if code, _ := n.ask("GET", "/healthz", ""); code != 403 {
		t.Errorf("the answer was not kept: %d", code)
	}
}

func TestAlwaysAllow(t *testing.T) {
	n := startWith(t, nil, func(o *server.Options) { o.AlwaysAllow = true })
	if code, body := n.ask("GET", "/healthz", "", n.client("somebody")); code != 200 || body != "ok" {
		t.Errorf("%d %q", code, body)
	}
	if code, _ := n.ask("GET", "/healthz", ""); code != 401 {
		t.Errorf("nobody: %d", code)
	}
}

// While the API is away nobody gets in who is not known, and nobody is told that they may not.
func TestAPIAway(t *testing.T) {
	n := start(t)
	token := n.api.Config().BearerToken
	somebody := n.client("root", "system:masters")
	if code, _ := n.ask("GET", "/healthz", token); code != 200 {
		t.Fatal(code)
	}
	n.api.Kill()
	if code, _ := n.ask("GET", "/healthz", token); code != 200 {
		t.Errorf("who is known: %d", code)
	}
	if code, body := n.ask("GET", "/pods", "", somebody); code != 500 || !strings.HasPrefix(body, "Authorization error (user=root, verb=get, resource=nodes, subresource=pods)") {
		t.Errorf("who is not asked about yet: %d %q", code, body)
	}
	if code, _ := n.ask("GET", "/healthz", "another"); code != 401 {
		t.Errorf("an unknown token: %d", code)
	}
}

// The node itself may ask who others are.
func TestNodesMayReviewTokens(t *testing.T) {
	n := start(t)
	kubelet := n.api.InProcess("kubelet", "system:node:n", "system:nodes").Kubernetes()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: n.api.ConfigFor("eve").BearerToken}}
	got, err := kubelet.AuthenticationV1().TokenReviews().Create(context.Background(), review, metav1.CreateOptions{})
	if err != nil || got.Status.User.Username != "eve" {
		t.Errorf("%+v %v", got, err)
	}
}
