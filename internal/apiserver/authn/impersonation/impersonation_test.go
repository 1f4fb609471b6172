package impersonation_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/impersonation"
	"skiff/internal/apiserver/authz"
)

// rules is an authorizer that allows the listed permissions: "verb group/plural[/subresource] [namespace/]name".
type rules struct {
	allowed []string
	calls   []string
	users   []*authn.User
	err     error
}

func (r *rules) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	what := a.Group + "/" + a.Plural
	if a.Subresource != "" {
		what += "/" + a.Subresource
	}
	name := a.Name
	if a.Namespace != "" {
		name = a.Namespace + "/" + name
	}
	question := strings.TrimSpace(a.Verb + " " + what + " " + name)
	if !a.Resource {
		question = a.Verb + " " + a.Path
	}
	r.calls, r.users = append(r.calls, question), append(r.users, a.User)
	if slices.Contains(r.allowed, question) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "no rule", r.err
}

var listPods = authz.Attributes{Verb: "list", Resource: true, Version: "v1", Plural: "pods", Namespace: "web", Path: "/api/v1/namespaces/web/pods"}

func headers(pairs ...string) http.Header {
	h := http.Header{"Accept": {"*/*"}}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestImpersonate(t *testing.T) {
	robot := &authn.User{Username: "system:serviceaccount:web:robot", Extra: map[string]authenticationv1.ExtraValue{authn.ExtraNodeName: {"n1"}, authn.ExtraPodName: {"p"}}}
	anna := &authn.User{Username: "anna"}
	for name, c := range map[string]struct {
		requestor  *authn.User
		headers    http.Header
		allowed    []string
		want       *authn.User
		constraint string
		err        string
		reason     func(error) bool
	}{
		"no headers": {headers: headers()},
		"a user": {
			headers: headers("Impersonate-User", "bert"), allowed: []string{"impersonate /users bert"},
			want: &authn.User{Username: "bert", Groups: []string{"system:authenticated"}}},
		"a user with everything": {
			headers: headers("Impersonate-User", "bert", "Impersonate-Uid", "7", "Impersonate-Group", "g", "Impersonate-Group", "h", "Impersonate-Extra-Acme.com%2fScope", "s"),
			allowed: []string{"impersonate /users bert", "impersonate authentication.k8s.io/uids 7", "impersonate /groups g", "impersonate /groups h", "impersonate authentication.k8s.io/userextras/acme.com/scope s"},
			want:    &authn.User{Username: "bert", UID: "7", Groups: []string{"g", "h", "system:authenticated"}, Extra: map[string]authenticationv1.ExtraValue{"acme.com/scope": {"s"}}}},
		"one group is not allowed": {
			headers: headers("Impersonate-User", "bert", "Impersonate-Group", "g", "Impersonate-Group", "h"), allowed: []string{"impersonate /users bert", "impersonate /groups g"},
			err: `pods is forbidden: User "anna" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "web": no rule`, reason: apierrors.IsForbidden},
		"a service account": {
			headers: headers("Impersonate-User", "system:serviceaccount:web:robot"), allowed: []string{"impersonate /serviceaccounts web/robot"},
			want: &authn.User{Username: "system:serviceaccount:web:robot", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:web", "system:authenticated"}}},
		"a service account in other groups": {
			headers: headers("Impersonate-User", "system:serviceaccount:web:robot", "Impersonate-Group", "g"), allowed: []string{"impersonate /serviceaccounts web/robot", "impersonate /groups g"},
			want: &authn.User{Username: "system:serviceaccount:web:robot", Groups: []string{"g", "system:authenticated"}}},
		"anonymous": {
			headers: headers("Impersonate-User", "system:anonymous"), allowed: []string{"impersonate /users system:anonymous"},
			want: &authn.User{Username: "system:anonymous", Groups: []string{"system:unauthenticated"}}},
		"unauthenticated": {
			headers: headers("Impersonate-User", "bert", "Impersonate-Group", "system:unauthenticated"), allowed: []string{"impersonate /users bert", "impersonate /groups system:unauthenticated"},
			want: &authn.User{Username: "bert", Groups: []string{"system:unauthenticated"}}},
		"masters, unconstrained": {
			headers: headers("Impersonate-User", "bert", "Impersonate-Group", "system:masters"), allowed: []string{"impersonate /users bert", "impersonate /groups system:masters"},
			want: &authn.User{Username: "bert", Groups: []string{"system:masters", "system:authenticated"}}},
		"masters, constrained": {
			headers: headers("Impersonate-User", "bert", "Impersonate-Group", "system:masters"),
			allowed: []string{"impersonate-on:user-info:list /pods web/", "impersonate:user-info authentication.k8s.io/users bert", "impersonate:user-info authentication.k8s.io/groups system:masters"},
			err:     `groups.authentication.k8s.io "system:masters" is forbidden: User "anna" cannot impersonate:user-info resource "groups" in API group "authentication.k8s.io" at the cluster scope: impersonating the system:masters group is not allowed`, reason: apierrors.IsForbidden},
		"groups without a user": {
			headers: headers("Impersonate-Group", "g"), reason: apierrors.IsBadRequest,
			err: `requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, Extra:map[string][]string(nil)} without impersonating a user name`},
		"an extra without a user": {
			headers: headers("Impersonate-Extra-Scope", "s"), reason: apierrors.IsBadRequest,
			err: `requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string(nil), Extra:map[string][]string{"scope":[]string{"s"}}} without impersonating a user name`},
		"a user, constrained": {
			headers: headers("Impersonate-User", "bert", "Impersonate-Uid", "7"), constraint: "impersonate:user-info",
			allowed: []string{"impersonate-on:user-info:list /pods web/", "impersonate:user-info authentication.k8s.io/users bert", "impersonate:user-info authentication.k8s.io/uids 7"},
			want:    &authn.User{Username: "bert", UID: "7", Groups: []string{"system:authenticated"}}},
		"a user, constrained to something else": {
			headers: headers("Impersonate-User", "bert"), allowed: []string{"impersonate-on:user-info:get /pods web/", "impersonate:user-info authentication.k8s.io/users bert"},
			err: `cannot impersonate-on:user-info:list resource "pods"`, reason: apierrors.IsForbidden},
		"many groups at once, constrained": {
			headers:    headers("Impersonate-User", "bert", "Impersonate-Group", "a", "Impersonate-Group", "b", "Impersonate-Group", "c", "Impersonate-Group", "d"),
			allowed:    []string{"impersonate-on:user-info:list /pods web/", "impersonate:user-info authentication.k8s.io/users bert", "impersonate:user-info authentication.k8s.io/groups *"},
			constraint: "impersonate:user-info",
			want:       &authn.User{Username: "bert", Groups: []string{"a", "b", "c", "d", "system:authenticated"}}},
		"many extras at once, constrained": {
			headers:    headers("Impersonate-User", "bert", "Impersonate-Extra-Acme.com%2fa", "1", "Impersonate-Extra-Acme.com%2fa", "2", "Impersonate-Extra-Acme.com%2fb", "3", "Impersonate-Extra-Acme.com%2fb", "4"),
			allowed:    []string{"impersonate-on:user-info:list /pods web/", "impersonate:user-info authentication.k8s.io/users bert", "impersonate:user-info authentication.k8s.io/userextras/* *"},
			constraint: "impersonate:user-info",
			want:       &authn.User{Username: "bert", Groups: []string{"system:authenticated"}, Extra: map[string]authenticationv1.ExtraValue{"acme.com/a": {"1", "2"}, "acme.com/b": {"3", "4"}}}},
		"an extra key that is no path, constrained": {
			headers: headers("Impersonate-User", "bert", "Impersonate-Extra-Scope", "s"),
			allowed: []string{"impersonate-on:user-info:list /pods web/", "impersonate:user-info authentication.k8s.io/users bert", "impersonate:user-info authentication.k8s.io/userextras/scope s"},
			err:     "impersonating an invalid key in extra is not allowed", reason: apierrors.IsForbidden},
		"an empty group, constrained": {
			headers: headers("Impersonate-User", "bert", "Impersonate-Group", ""), allowed: []string{"impersonate-on:user-info:list /pods web/", "impersonate:user-info authentication.k8s.io/users bert"},
			err: "impersonating the empty string group is not allowed", reason: apierrors.IsForbidden},
		"a service account, constrained": {
			headers: headers("Impersonate-User", "system:serviceaccount:web:robot"), constraint: "impersonate:serviceaccount",
			allowed: []string{"impersonate-on:serviceaccount:list /pods web/", "impersonate:serviceaccount authentication.k8s.io/serviceaccounts web/robot"},
			want:    &authn.User{Username: "system:serviceaccount:web:robot", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:web", "system:authenticated"}}},
		"a node, constrained": {
			headers: headers("Impersonate-User", "system:node:n1"), constraint: "impersonate:arbitrary-node",
			allowed: []string{"impersonate-on:arbitrary-node:list /pods web/", "impersonate:arbitrary-node authentication.k8s.io/nodes n1"},
			want:    &authn.User{Username: "system:node:n1", Groups: []string{"system:nodes", "system:authenticated"}}},
		"a node, unconstrained, is in no group of nodes": {
			headers: headers("Impersonate-User", "system:node:n1"), allowed: []string{"impersonate /users system:node:n1"},
			want: &authn.User{Username: "system:node:n1", Groups: []string{"system:authenticated"}}},
		"the node one is on": {
			requestor: robot, headers: headers("Impersonate-User", "system:node:n1"), constraint: "impersonate:associated-node",
			allowed: []string{"impersonate-on:associated-node:list /pods web/", "impersonate:associated-node authentication.k8s.io/nodes *"},
			want:    &authn.User{Username: "system:node:n1", Groups: []string{"system:nodes", "system:authenticated"}}},
		"another node than one is on": {
			requestor: robot, headers: headers("Impersonate-User", "system:node:n2"), allowed: []string{"impersonate-on:associated-node:list /pods web/", "impersonate:associated-node authentication.k8s.io/nodes *"},
			err: `cannot impersonate-on:arbitrary-node:list resource "pods"`, reason: apierrors.IsForbidden},
		"a page in a name": {
			headers: headers("Impersonate-User", "bert"), requestor: &authn.User{Username: "<b>"},
			err: `User "&lt;b&gt;" cannot impersonate-on`, reason: apierrors.IsForbidden},
		"too much": {
			headers: http.Header{"Impersonate-User": {"bert"}, "Impersonate-Group": slices.Repeat([]string{"g"}, 5000)}, reason: apierrors.IsBadRequest, err: "requested 5000 groups"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.requestor == nil {
				c.requestor = anna
			}
			request := listPods
			request.User = c.requestor
			got, constraint, err := impersonation.New(&rules{allowed: c.allowed}).Impersonate(context.Background(), c.headers, &request)
			if c.err != "" {
				if got != nil || err == nil || !strings.Contains(err.Error(), c.err) || !c.reason(err) {
					t.Fatalf("got %v, %v", got, err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, c.want) || constraint != c.constraint {
				t.Fatalf("got %+v, %q, %v", got, constraint, err)
			}
			if len(c.headers) != 1 {
				t.Errorf("headers left: %v", c.headers)
			}
		})
	}
}

func TestLastSuccessfulModeIsTriedFirst(t *testing.T) {
	r := &rules{allowed: []string{"impersonate /users bert"}}
	i := impersonation.New(r)
	request := listPods
	request.User = &authn.User{Username: "anna"}
	for range 2 {
		r.calls = nil
		if _, _, err := i.Impersonate(context.Background(), headers("Impersonate-User", "bert"), &request); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.calls) != 1 {
		t.Errorf("called with %q", r.calls)
	}
	_, _, err := i.Impersonate(context.Background(), headers("Impersonate-User", "carl"), &request)
	if want := `users "carl" is forbidden: User "anna" cannot impersonate resource "users" in API group "" at the cluster scope: no rule`; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestAssociatedNodeAttributesDoNotNameTheNode(t *testing.T) {
	r := &rules{}
	request := listPods
	request.User = &authn.User{Username: "system:serviceaccount:web:robot", Extra: map[string]authenticationv1.ExtraValue{authn.ExtraNodeName: {"n1"}, authn.ExtraPodName: {"p"}}}
	_, _, _ = impersonation.New(r).Impersonate(context.Background(), headers("Impersonate-User", "system:node:n1"), &request)
	want := map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/associated-node-keys": {authn.ExtraNodeName, authn.ExtraPodName}}
	if !reflect.DeepEqual(r.users[0].Extra, want) {
		t.Errorf("called with extra %v", r.users[0].Extra)
	}
	if len(request.User.Extra) != 2 {
		t.Errorf("the request's user was changed: %v", request.User.Extra)
	}
}

func TestReasonOfTheAuthorizerIsReturned(t *testing.T) {
	request := authz.Attributes{Verb: "get", Path: "/healthz", User: &authn.User{Username: "anna"}}
	_, _, err := impersonation.New(&rules{err: errors.New("no webhook")}).Impersonate(context.Background(), headers("Impersonate-User", "bert"), &request)
	if want := `forbidden: User "anna" cannot impersonate-on:user-info:get path "/healthz": no webhook: no rule`; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	already := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New("an earlier reason"))
	_, _, err = impersonation.New(&rules{err: already}).Impersonate(context.Background(), headers("Impersonate-User", "bert"), &request)
	if !errors.Is(err, already) {
		t.Errorf("got %v", err)
	}
}

func BenchmarkImpersonate(b *testing.B) {
	request := listPods
	request.User = &authn.User{Username: "anna"}
	h := headers("User-Agent", "bench", "Content-Type", "application/json", "Accept-Encoding", "gzip")
	i := impersonation.New(authz.AlwaysAllow{})
	for name, with := range map[string]bool{"no headers": false, "a user": true} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if with {
					h.Set("Impersonate-User", "bert")
				}
				if user, _, err := i.Impersonate(context.Background(), h, &request); (user != nil) != with || err != nil {
					b.Fatal(fmt.Sprint(user, err))
				}
			}
		})
	}
}
