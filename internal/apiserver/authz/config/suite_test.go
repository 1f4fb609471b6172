package config_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/authz/config"
	"skiff/internal/apiserver/authz/node"
	"skiff/internal/apiserver/authz/rbac"
	"skiff/internal/apiserver/authz/rbac/bootstrap"
	"skiff/internal/apiserver/objects/objectstest"
)

// subject is an authorizer in the suite, and who may get services in the namespace team by it. Nobody else may do anything by it.
type subject struct {
	name   string
	make   func(t testing.TB) authz.Authorizer
	friend *authn.User
	// listsRules says that the friend's rules can be listed.
	listsRules bool
	// ignoresSubresources says that who may get an object may get its subresources, too.
	ignoresSubresources bool
}

var friend = &authn.User{Username: "friend", Groups: []string{"friends", authn.SystemAuthenticated}}

func subjects() []subject {
	return []subject{
		{name: "rbac", make: func(testing.TB) authz.Authorizer { return newRBAC() }, friend: friend, listsRules: true},
		{name: "node", make: func(testing.TB) authz.Authorizer { return node.New(objectstest.New(), bootstrap.NodeRules()) },
			friend: &authn.User{Username: "system:node:n1", Groups: []string{authn.SystemNodes, authn.SystemAuthenticated}}},
		{name: "abac", make: func(t testing.TB) authz.Authorizer {
			return fromFlags(t, config.Options{Modes: []string{"ABAC"}, PolicyFile: abacFile(t)})
		}, friend: friend, listsRules: true,
			ignoresSubresources: true},
		{name: "webhook", make: func(t testing.TB) authz.Authorizer {
			return fromFlags(t, config.Options{Modes: []string{"Webhook"}, WebhookConfigFile: reviewer(t), WebhookVersion: "v1"})
		}, friend: friend},
		{name: "cached webhook", make: func(t testing.TB) authz.Authorizer {
			o := config.Default()
			o.Modes, o.WebhookConfigFile = []string{"Webhook"}, reviewer(t)
			return fromFlags(t, o)
		}, friend: friend},
		{name: "a configuration with all", make: func(t testing.TB) authz.Authorizer {
			text := strings.Replace(hook(reviewer(t), "Deny", "NoOpinion"), "- {type: RBAC", "- {type: AlwaysDeny, name: alwaysdeny}\n- {type: Node, name: node}\n- {type: ABAC, name: abac}\n- {type: RBAC", 1)
			return fromFlags(t, config.Options{ConfigFile: write(t, t.TempDir(), "config", text), PolicyFile: abacFile(t)})
		}, friend: friend, ignoresSubresources: true},
	}
}

func fromFlags(t testing.TB, o config.Options) authz.Authorizer {
	t.Helper()
	a, err := config.New(o, parts(func(p *config.Parts) {
		p.Node = func() authz.Authorizer { return node.New(objectstest.New(), bootstrap.NodeRules()) }
		p.RBAC = newRBAC
	}))
	if err != nil {
		t.Fatal(err)
	}
	return a.Authorizer
}

func newRBAC() authz.Authorizer {
	store := objectstest.New()
	store.Put(rbac.Roles, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "r"},
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"services"}}}})
	store.Put(rbac.RoleBindings, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "b"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "r"},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: "friend"}}})
	return rbac.New(store)
}

func abacFile(t testing.TB) string {
	return write(t, t.TempDir(), "policies", `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"friend","namespace":"team","resource":"services","readonly":true}}`)
}

// reviewer starts a webhook's server that allows what the suite's friend may do, and returns a kubeconfig for it.
func reviewer(t testing.TB) string {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a := review.Spec.ResourceAttributes
		review.Status.Allowed = review.Spec.User == "friend" && a != nil && a.Verb == "get" && a.Resource == "services" && a.Group == "" && a.Subresource == "" && a.Namespace == "team"
		_ = json.NewEncoder(w).Encode(&review)
	}))
	t.Cleanup(s.Close)
	ca, _ := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return write(t, t.TempDir(), "kubeconfig", strings.Replace(nowhere, `server: "https://127.0.0.1:1/authorize"`, fmt.Sprintf(`server: %q, certificate-authority-data: %s`, s.URL, ca), 1))
}

// TestSuite holds every authorizer to what all must do with good, wrong and hostile questions.
func TestSuite(t *testing.T) {
	for _, s := range subjects() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			a := s.make(t)
			good := func() *authz.Attributes {
				return &authz.Attributes{User: s.friend, Verb: "get", Resource: true, Version: "v1", Plural: "services", Namespace: "team", Name: "web", Path: "/api/v1/namespaces/team/services/web"}
			}
			allowed := func(name string, at *authz.Attributes, want bool) {
				t.Helper()
				before := *at
				decision, reason, err := a.Authorize(t.Context(), at)
				if (decision == authz.Allow) != want || want && err != nil || len(reason) > 1<<20 {
					t.Errorf("%s: decision %v for %.200q, %v, want allowed: %v", name, decision, reason, err, want)
				}
				if diff := cmp.Diff(before, *at); diff != "" {
					t.Errorf("%s: the question was changed:\n%s", name, diff)
				}
			}
			allowed("good", good(), true)
			for name, c := range wrong(s) {
				at := good()
				c(at)
				allowed(name, at, false)
			}
			allowed("good again", good(), true)
			t.Run("together", func(t *testing.T) { together(t, a, good, wrong(s)["another user"]) })

			rules, err := authz.RulesOf(t.Context(), a, s.friend, "team")
			switch {
			case s.listsRules && (err != nil || rules.Incomplete || len(rules.Resources) != 1 || rules.Resources[0].Resources[0] != "services"):
				t.Errorf("rules %+v, %v", rules, err)
			case !s.listsRules && (err == nil || !rules.Incomplete):
				t.Errorf("rules that cannot be listed are said to be complete: %+v, %v", rules, err)
			}
			for _, user := range []*authn.User{{}, {Username: "stranger", Groups: []string{"strangers"}}} {
				rules, _ := authz.RulesOf(t.Context(), a, user, "team")
				if len(rules.Resources)+len(rules.Others) > 0 {
					t.Errorf("%q has rules: %+v", user.Username, rules)
				}
			}
		})
	}
}

// wrong returns changes to the good question, each of which makes it one that must not be allowed.
func wrong(s subject) map[string]func(*authz.Attributes) {
	const huge = 1 << 20
	cases := map[string]func(*authz.Attributes){
		"another user":            func(a *authz.Attributes) { a.User = &authn.User{Username: "foe", Groups: []string{"foes"}} },
		"another case":            func(a *authz.Attributes) { a.User = renamed(s.friend, strings.ToUpper(s.friend.Username)) },
		"a name with a space":     func(a *authz.Attributes) { a.User = renamed(s.friend, s.friend.Username[:3]+" "+s.friend.Username[3:]) },
		"a wildcard user":         func(a *authz.Attributes) { a.User = &authn.User{Username: "*", Groups: []string{"*"}} },
		"no user":                 func(a *authz.Attributes) { a.User = nil },
		"an empty user":           func(a *authz.Attributes) { a.User = &authn.User{} },
		"the name as a group":     func(a *authz.Attributes) { a.User = &authn.User{Username: "x", Groups: []string{s.friend.Username}} },
		"a huge user":             func(a *authz.Attributes) { a.User = &authn.User{Username: strings.Repeat("x", huge)} },
		"another verb":            func(a *authz.Attributes) { a.Verb = "delete" },
		"a wildcard verb":         func(a *authz.Attributes) { a.Verb = "*" },
		"no verb":                 func(a *authz.Attributes) { a.Verb = "" },
		"a verb in capitals":      func(a *authz.Attributes) { a.Verb = "GET" },
		"another resource":        func(a *authz.Attributes) { a.Plural = "roles" },
		"a wildcard resource":     func(a *authz.Attributes) { a.Plural = "*" },
		"a resource with a slash": func(a *authz.Attributes) { a.Plural = "services/status" },
		"a huge resource":         func(a *authz.Attributes) { a.Plural = strings.Repeat("x", huge) },
		"no resource":             func(a *authz.Attributes) { a.Plural = "" },
		"another group":           func(a *authz.Attributes) { a.Group = "apps" },
		"a wildcard group":        func(a *authz.Attributes) { a.Group = "*" },
		"a path":                  func(a *authz.Attributes) { a.Resource = false },
		"a path of nothing":       func(a *authz.Attributes) { *a = authz.Attributes{User: a.User, Verb: "post", Path: "/x"} },
		"control characters":      func(a *authz.Attributes) { a.Plural, a.Namespace = "services\x00", "team\n\x1b[31m" },
		"no UTF-8": func(a *authz.Attributes) {
			a.User = renamed(s.friend, s.friend.Username[:3]+"\xff"+s.friend.Username[3:])
		},
		"selectors of nonsense": func(a *authz.Attributes) {
			a.Verb, a.FieldSelector, a.LabelSelector = "deletecollection", strings.Repeat("(", 100000), strings.Repeat("a in (", 10000)
		},
	}
	if s.name != "node" { // services are read in every namespace by nodes
		cases["another namespace"] = func(a *authz.Attributes) { a.Namespace = "other" }
		cases["a wildcard namespace"] = func(a *authz.Attributes) { a.Namespace = "*" }
		cases["no namespace"] = func(a *authz.Attributes) { a.Namespace = "" }
		cases["the way out of a namespace"] = func(a *authz.Attributes) { a.Namespace = "../team" }
	}
	if !s.ignoresSubresources {
		cases["a subresource"] = func(a *authz.Attributes) { a.Subresource = "proxy" }
	}
	return cases
}

func renamed(u *authn.User, name string) *authn.User {
	other := *u
	other.Username = name
	return &other
}

// together asks good and bad questions from several goroutines.
func together(t *testing.T, a authz.Authorizer, good func() *authz.Attributes, spoil func(*authz.Attributes)) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				at, want := good(), true
				if i%2 == 1 {
					spoil(at)
					want = false
				}
				if decision, _, err := a.Authorize(t.Context(), at); (decision == authz.Allow) != want || want && err != nil {
					t.Errorf("%v, %v, want allowed: %v", decision, err, want)
				}
				_, _ = authz.RulesOf(t.Context(), a, at.User, "team")
			}
		})
	}
	wg.Wait()
}

// BenchmarkNodeAndRBAC is a request that RBAC allows, with the modes that are on by default: what counting decisions costs.
func BenchmarkNodeAndRBAC(b *testing.B) {
	at := &authz.Attributes{User: friend, Verb: "get", Resource: true, Version: "v1", Plural: "services", Namespace: "team", Name: "web"}
	bare := authz.Chain{authz.Masters{}, node.New(objectstest.New(), bootstrap.NodeRules()), newRBAC()}
	for name, a := range map[string]authz.Authorizer{"chain": bare, "counted": fromFlags(b, config.Options{Modes: []string{"Node", "RBAC"}}),
		"configuration": fromFlags(b, config.Options{ConfigFile: write(b, b.TempDir(), "config", head+"authorizers: [{type: Node, name: node}, {type: RBAC, name: rbac}]")})} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if decision, _, err := a.Authorize(b.Context(), at); decision != authz.Allow {
					b.Fatal(decision, err)
				}
			}
		})
	}
}
