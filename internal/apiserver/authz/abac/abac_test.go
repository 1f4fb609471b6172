package abac

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
)

const head = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":`

// policies returns the authorizer of lines.
func policies(t testing.TB, lines ...string) *Authorizer {
	t.Helper()
	a, err := parse(strings.NewReader(strings.Join(lines, "\n")), "policies", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// request makes attributes of "USER[,GROUP...] VERB RESOURCE.GROUP[/NAMESPACE]" or "... VERB /PATH".
func request(text string) *authz.Attributes {
	words := strings.Fields(text)
	users := strings.Split(words[0], ",")
	a := &authz.Attributes{User: &authn.User{Username: users[0], Groups: users[1:]}, Verb: words[1]}
	if a.Path = words[2]; !strings.HasPrefix(a.Path, "/") {
		a.Resource = true
		what, namespace, _ := strings.Cut(words[2], "/")
		a.Plural, a.Group, _ = strings.Cut(what, ".")
		a.Namespace, a.Path = namespace, "/ignored"
	}
	return a
}

func TestMatching(t *testing.T) {
	for _, c := range []struct {
		policy         string
		allows, leaves []string
	}{
		{`{"user":"alice","namespace":"*","resource":"*","apiGroup":"*"}`,
			[]string{"alice get pods./ns", "alice delete deployments.apps/other", "alice create nodes."},
			[]string{"bob get pods./ns", "Alice get pods./ns", "alice get /version", "bob,alice get pods./ns"}},
		{`{"user":"kubelet","namespace":"*","resource":"pods","readonly":true}`,
			[]string{"kubelet get pods./ns", "kubelet list pods.", "kubelet watch pods./a"},
			[]string{"kubelet create pods./ns", "kubelet delete pods./ns", "kubelet deletecollection pods./ns", "kubelet get pods.metrics.k8s.io/ns", "kubelet get services./ns", "kubelet get /pods"}},
		{`{"user":"bob","namespace":"projectCaribou","resource":"pods","readonly":true}`,
			[]string{"bob get pods./projectCaribou"},
			[]string{"bob get pods./other", "bob get pods.", "bob create pods./projectCaribou", "bob get pods./projectcaribou"}},
		{`{"user":"bob","namespace":"","resource":"nodes"}`, []string{"bob update nodes."}, []string{"bob update nodes./ns"}},
		{`{"user":"bob","namespace":"ns","resource":"deployments","apiGroup":"apps"}`, []string{"bob update deployments.apps/ns"}, []string{"bob get deployments./ns", "bob get deployments.extensions/ns"}},
		{`{"group":"devs","namespace":"*","resource":"*"}`, []string{"x,devs get pods./ns", "x,a,devs get pods./ns"}, []string{"x get pods./ns", "devs get pods./ns", "x,dev get pods./ns"}},
		{`{"user":"x","group":"devs","namespace":"*","resource":"*"}`, []string{"x,devs get pods."}, []string{"x get pods.", "y,devs get pods."}},
		{`{"user":"*","namespace":"*","resource":"*"}`, []string{"x,system:authenticated get pods."}, []string{"system:anonymous,system:unauthenticated get pods.", "x get pods."}},
		{`{"group":"*","namespace":"*","resource":"*"}`, []string{"x,system:authenticated get pods."}, []string{"x,any get pods."}},
		{`{"user":"x","group":"*","nonResourcePath":"*"}`, []string{"y,system:authenticated get /a"}, []string{"x get /a"}},
		{`{"group":"system:unauthenticated","readonly":true,"nonResourcePath":"*"}`,
			[]string{"system:anonymous,system:unauthenticated get /healthz"}, []string{"system:anonymous,system:unauthenticated post /healthz", "system:anonymous,system:unauthenticated get pods./ns"}},
		{`{"user":"x","nonResourcePath":"/logs"}`, []string{"x get /logs", "x post /logs"}, []string{"x get /logs/", "x get /log", "x get /logs/a"}},
		{`{"user":"x","nonResourcePath":"/logs/*"}`, []string{"x get /logs/", "x get /logs/a/b"}, []string{"x get /logs", "x get /a/logs/"}},
		{`{"user":"x","nonResourcePath":"/logs**"}`, []string{"x get /logs", "x get /logsabc"}, []string{"x get /log"}},
		{`{"namespace":"*","resource":"*","apiGroup":"*","nonResourcePath":"*"}`, nil, []string{"x,system:authenticated get pods.", "x,system:masters get /a"}},
		{`{"user":"x"}`, []string{"x get ."}, []string{"x get pods.", "x get /", "x get ./ns"}},
	} {
		a := policies(t, head+c.policy+"}")
		for _, text := range c.allows {
			if decision, reason, err := a.Authorize(t.Context(), request(text)); decision != authz.Allow || reason != "" || err != nil {
				t.Errorf("%s, %s: %v %q %v, want it allowed", c.policy, text, decision, reason, err)
			}
		}
		for _, text := range c.leaves {
			if decision, reason, err := a.Authorize(t.Context(), request(text)); decision != authz.NoOpinion || reason != "No policy matched." || err != nil {
				t.Errorf("%s, %s: %v %q %v, want no opinion", c.policy, text, decision, reason, err)
			}
		}
		if decision, _, _ := a.Authorize(t.Context(), &authz.Attributes{Resource: true}); decision != authz.NoOpinion {
			t.Errorf("%s allows a request without a user", c.policy)
		}
	}
}

// TestOlderForm: what a line without apiVersion and kind does not say is not restricted.
func TestOlderForm(t *testing.T) {
	everybody := authn.SystemAuthenticated
	for line, want := range map[string]spec{
		`{}`:                              {Group: everybody, APIGroup: "*", Namespace: "*", Resource: "*", NonResourcePath: "*"},
		`{"user":"bob"}`:                  {User: "bob", APIGroup: "*", Namespace: "*", Resource: "*", NonResourcePath: "*"},
		`{"group":"devs"}`:                {Group: "devs", APIGroup: "*", Namespace: "*", Resource: "*", NonResourcePath: "*"},
		`{"user":"*","group":"devs"}`:     {Group: everybody, APIGroup: "*", Namespace: "*", Resource: "*", NonResourcePath: "*"},
		`{"user":"bob","group":"*"}`:      {Group: everybody, APIGroup: "*", Namespace: "*", Resource: "*", NonResourcePath: "*"},
		`{"namespace":"ns"}`:              {Group: everybody, APIGroup: "*", Namespace: "ns", Resource: "*"},
		`{"resource":"pods"}`:             {Group: everybody, APIGroup: "*", Namespace: "*", Resource: "pods"},
		`{"user":"x","readonly":true}`:    {User: "x", Readonly: true, APIGroup: "*", Namespace: "*", Resource: "*", NonResourcePath: "*"},
		`{"kind":"Policy","user":"x"}`:    {User: "x", APIGroup: "*", Namespace: "*", Resource: "*", NonResourcePath: "*"},
		`{user: x, resource: pods}`:       {},
		`user: x`:                         {User: "x", APIGroup: "*", Namespace: "*", Resource: "*", NonResourcePath: "*"},
		`{"user":"x","apiGroup":"batch"}`: {User: "x", APIGroup: "*", Namespace: "*", Resource: "*", NonResourcePath: "*"},
		`{"apiVersion":"abac.authorization.kubernetes.io/v0","kind":"Policy","user":"x"}`: {User: "x", APIGroup: "*", Namespace: "*", Resource: "*", NonResourcePath: "*"},
	} {
		policy, unversioned, _, err := parseLine([]byte(line))
		if want == (spec{}) {
			if err == nil {
				t.Errorf("%s was read", line)
			}
			continue
		}
		if diff := cmp.Diff(want, policy); diff != "" || !unversioned || err != nil {
			t.Errorf("%s: %v, %v\n%s", line, unversioned, err, diff)
		}
	}
}

func TestRead(t *testing.T) {
	const good = head + `{"user":"x","nonResourcePath":"*"}}`
	long := head + `{"user":"` + strings.Repeat("x", 64<<10) + `"}}`
	for _, c := range []struct{ name, text, err, warning string }{
		{"nothing", "", "", ""},
		{"comments and blank lines", "# a comment\n\n  \n\t# another\n" + good + "\n", "", ""},
		{"CRLF", good + "\r\n" + good + "\r\n", "", ""},
		{"an older line", `{"user":"x"}`, "", "lines without apiVersion and kind"},
		{"a misspelt field", head + `{"user":"x","readOnly":true}}`, "", `unknown field \"spec.readOnly\"`},
		{"no JSON", good + "\nhello", "error reading policy file F, line 2: hello: couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value", ""},
		{"cut off", good + "\n{\"user\":", "error reading policy file F, line 2: {\"user\":: couldn't get version/kind; json parse error: unexpected end of JSON input", ""},
		{"a list", "[]", "error reading policy file F, line 1: []: couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value", ""},
		{"two objects", good + good, "line 1", ""},
		{"another type", head + `{"user":1}}`, "error reading policy file F, line 1", ""},
		{"another type of readonly", head + `{"user":"x","readonly":"true"}}`, "error reading policy file F, line 1", ""},
		{"another version", `{"apiVersion":"abac.authorization.kubernetes.io/v2","kind":"Policy"}`, `no kind "Policy" is registered for version "abac.authorization.kubernetes.io/v2"`, ""},
		{"another group", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role"}`, `no kind "Role" is registered for version "rbac.authorization.k8s.io/v1"`, ""},
		{"another kind", `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Role"}`, `no kind "Role" is registered`, ""},
		{"another kind of no version", `{"kind":"Role"}`, `no kind "Role" is registered`, ""},
		{"no kind", `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","spec":{"user":"x"}}`, "Object 'Kind' is missing in", ""},
		{"a version that is none", `{"apiVersion":"a/b/c","kind":"Policy"}`, "unexpected GroupVersion string: a/b/c", ""},
		{"a line that is too long", good + "\n" + long, "error reading policy file F: bufio.Scanner: token too long", ""},
		{"many lines", strings.Repeat(good+"\n", (maxFile+1)/len(good)+1), "error reading policy file F: it is larger than 16777216 bytes", ""},
		{"deep nesting", head + strings.Repeat(`{"a":`, 20000), "error reading policy file F", ""},
		{"nulls", "{\x00}", "error reading policy file F, line 1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "policies")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			_, err := Read(path, slog.New(slog.NewTextHandler(&log, nil)))
			want := strings.ReplaceAll(c.err, "file F", "file "+path)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%.2000v\nwant %s", err, want)
			}
			if (log.Len() == 0) != (c.warning == "") || !strings.Contains(log.String(), c.warning) {
				t.Errorf("logged %q, want %q", &log, c.warning)
			}
		})
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none"), slog.New(slog.DiscardHandler)); !os.IsNotExist(err) {
		t.Errorf("a file that does not exist: %v", err)
	}
}

// TestExample is the example of Kubernetes' documentation.
func TestExample(t *testing.T) {
	a := policies(t,
		head+`{"user":"alice","namespace":"*","resource":"*","apiGroup":"*"}}`,
		head+`{"user":"kubelet","namespace":"*","resource":"pods","readonly":true}}`,
		head+`{"user":"kubelet","namespace":"*","resource":"events"}}`,
		head+`{"user":"bob","namespace":"projectCaribou","resource":"pods","readonly":true}}`,
		head+`{"group":"system:authenticated","readonly":true,"nonResourcePath":"*"}}`,
		head+`{"group":"system:unauthenticated","readonly":true,"nonResourcePath":"*"}}`,
		head+`{"user":"system:serviceaccount:kube-system:default","namespace":"*","resource":"*","apiGroup":"*"}}`)
	for text, want := range map[string]authz.Decision{
		"alice delete secrets./kube-system":                                authz.Allow,
		"kubelet list pods./a":                                             authz.Allow,
		"kubelet create events./a":                                         authz.Allow,
		"kubelet create pods./a":                                           authz.NoOpinion,
		"bob get pods./projectCaribou":                                     authz.Allow,
		"bob get secrets./projectCaribou":                                  authz.NoOpinion,
		"bob,system:authenticated get /version":                            authz.Allow,
		"system:anonymous,system:unauthenticated get /healthz":             authz.Allow,
		"system:serviceaccount:kube-system:default update configmaps./any": authz.Allow,
		"carol,system:authenticated get pods./projectCaribou":              authz.NoOpinion,
	} {
		if decision, _, _ := a.Authorize(t.Context(), request(text)); decision != want {
			t.Errorf("%s: %v, want %v", text, decision, want)
		}
	}
}

func TestRules(t *testing.T) {
	a := policies(t,
		head+`{"user":"bob","namespace":"ns","resource":"pods","readonly":true}}`,
		head+`{"user":"bob","namespace":"*","resource":"*","apiGroup":"*"}}`,
		head+`{"user":"bob","namespace":"other","resource":"secrets"}}`,
		head+`{"group":"devs","namespace":"*","nonResourcePath":"/logs/*"}}`,
		head+`{"group":"devs","nonResourcePath":"/ignored"}}`, // as upstream: rules of paths are listed for the namespace of their policy
		head+`{"user":"alice","namespace":"*","resource":"nodes"}}`)
	rules, err := a.RulesFor(t.Context(), &authn.User{Username: "bob", Groups: []string{"devs"}}, "ns")
	want := authz.Rules{
		Resources: []authorizationv1.ResourceRule{
			{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}},
			{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		},
		Others: []authorizationv1.NonResourceRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"/logs/*"}}},
	}
	if diff := cmp.Diff(want, rules); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

// FuzzPolicyFile: no file crashes the server, and no policy allows a user whom it does not name.
func FuzzPolicyFile(f *testing.F) {
	f.Add(head + `{"user":"alice","namespace":"*","resource":"*","apiGroup":"*"}}`)
	f.Add(head + `{"group":"devs","readonly":true,"nonResourcePath":"/logs/*"}}` + "\n# comment\n{}\n")
	f.Add("user: x")
	f.Add(`{"apiVersion":"abac.authorization.kubernetes.io/v0","kind":"Policy"}`)
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parse(strings.NewReader(text), "policies", slog.New(slog.DiscardHandler))
		if err != nil {
			return
		}
		stranger := &authn.User{Username: "stranger-7d1", Groups: []string{"strangers-7d1"}}
		for _, at := range []*authz.Attributes{{User: stranger, Verb: "get", Resource: true, Plural: "pods"}, {User: stranger, Verb: "get", Path: "/version"}} {
			if decision, _, _ := a.Authorize(t.Context(), at); decision != authz.NoOpinion && !strings.Contains(text, "stranger") {
				t.Errorf("%q allows a stranger", text)
			}
		}
		if rules, _ := a.RulesFor(t.Context(), stranger, "ns"); len(rules.Resources)+len(rules.Others) > 0 && !strings.Contains(text, "stranger") {
			t.Errorf("%q has rules for a stranger: %v", text, rules)
		}
	})
}

// BenchmarkAuthorize is a request that no policy of 100 allows.
func BenchmarkAuthorize(b *testing.B) {
	var lines []string
	for i := range 100 {
		lines = append(lines, head+fmt.Sprintf(`{"user":"user-%d","namespace":"*","resource":"pods"}}`, i))
	}
	a, at := policies(b, lines...), request("x,system:authenticated,devs get pods./ns")
	b.ReportAllocs()
	for b.Loop() {
		if decision, _, _ := a.Authorize(b.Context(), at); decision != authz.NoOpinion {
			b.Fatal("allowed")
		}
	}
}
