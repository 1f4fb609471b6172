package authn_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"testing"

	"skiff/internal/apiserver/authn"
)

func returns(user *authn.User, err error) authn.Authenticator {
	return authn.Func(func(*http.Request) (*authn.User, error) { return user, err })
}

func TestChainFirstSuccessWins(t *testing.T) {
	anna, bert := &authn.User{Username: "anna"}, &authn.User{Username: "bert"}
	for name, c := range map[string]struct {
		chain authn.Chain
		user  *authn.User
		err   string
	}{
		"empty chain":                    {authn.Chain{}, nil, ""},
		"no credential":                  {authn.Chain{returns(nil, nil), returns(nil, nil)}, nil, ""},
		"the first wins":                 {authn.Chain{returns(anna, nil), returns(bert, nil)}, anna, ""},
		"after one without a credential": {authn.Chain{returns(nil, nil), returns(bert, nil)}, bert, ""},
		"after one that refuses":         {authn.Chain{returns(nil, errors.New("bad")), returns(bert, nil)}, bert, ""},
		"all refuse":                     {authn.Chain{returns(nil, errors.New("bad")), returns(nil, nil), returns(nil, errors.New("worse"))}, nil, "[bad, worse]"},
		"a user and an error":            {authn.Chain{returns(anna, errors.New("bad"))}, nil, "bad"},
		"the same error twice":           {authn.Chain{returns(nil, errors.New("bad")), returns(nil, errors.New("bad"))}, nil, "bad"},
	} {
		user, err := c.chain.Authenticate(bare())
		if user != c.user || err == nil && c.err != "" || err != nil && err.Error() != c.err {
			t.Errorf("%s: got %v, %v", name, user, err)
		}
	}
}

func TestForServerAudiences(t *testing.T) {
	anna := &authn.User{Username: "anna"}
	for name, c := range map[string]struct {
		server, requested, valid []string
		authenticated            bool
	}{
		"none requested":                 {[]string{"a", "b"}, nil, []string{"a", "b"}, true},
		"some of the server's":           {[]string{"a", "b"}, []string{"c", "b"}, []string{"b"}, true},
		"others":                         {[]string{"a", "b"}, []string{"c"}, nil, false},
		"server has none":                {nil, nil, nil, true},
		"server has none, one requested": {nil, []string{"c"}, nil, false},
	} {
		called := false
		a := authn.ForServer(c.server, func(context.Context, string) (*authn.User, error) {
			called = true
			return anna, nil
		})
		user, good, err := authn.Chain{returns(nil, nil), struct {
			authn.Authenticator
			authn.TokenAuthenticator
		}{returns(nil, nil), a}}.AuthenticateToken(context.Background(), "token", c.requested)
		if (user != nil) != c.authenticated || called != c.authenticated || err != nil || !reflect.DeepEqual(good, c.valid) {
			t.Errorf("%s: got %v, %v, %v", name, user, good, err)
		}
	}
}

func TestAuthenticatedIsAddedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		user authn.User
		want []string
	}{
		"no groups":       {authn.User{Username: "anna"}, []string{"system:authenticated"}},
		"groups":          {authn.User{Username: "anna", Groups: []string{"a"}}, []string{"a", "system:authenticated"}},
		"already there":   {authn.User{Username: "anna", Groups: []string{"system:authenticated", "a"}}, []string{"system:authenticated", "a"}},
		"unauthenticated": {authn.User{Username: "anna", Groups: []string{"system:unauthenticated"}}, []string{"system:unauthenticated"}},
		"anonymous":       {authn.User{Username: "system:anonymous"}, nil},
	} {
		groups := append(make([]string, 0, 8), c.user.Groups...) // with spare capacity, which must not be written to
		user := c.user
		if groups = groups[:len(c.user.Groups)]; len(groups) > 0 {
			user.Groups = groups
		}
		if got := authn.Authenticated(&user); !reflect.DeepEqual(got.Groups, c.want) {
			t.Errorf("%s: got %v", name, got.Groups)
		}
		if room := groups[:cap(groups)]; room[len(groups)] != "" {
			t.Errorf("%s: the user's own groups were written to", name)
		}
	}
}

func TestServiceAccountNames(t *testing.T) {
	namespace, name, ok := authn.ServiceAccountOf(authn.ServiceAccountUser("web", "robot"))
	if !ok || namespace != "web" || name != "robot" {
		t.Errorf("got %s/%s, %v", namespace, name, ok)
	}
	for _, not := range []string{"", "anna", "system:serviceaccount:web", "system:serviceaccount::robot", "system:serviceaccount:web:", "system:serviceaccount:web:a:b",
		"system:serviceaccount:Web:robot", "system:serviceaccounts:web:robot"} {
		if namespace, name, ok := authn.ServiceAccountOf(not); ok {
			t.Errorf("%q: got %s/%s", not, namespace, name)
		}
	}
	if node, ok := authn.NodeOf(authn.NodeUser("n1")); !ok || node != "n1" {
		t.Errorf("got node %q, %v", node, ok)
	}
	if node, ok := authn.NodeOf("system:node:"); ok {
		t.Errorf("got node %q", node)
	}
}

func TestInProcess(t *testing.T) {
	user := &authn.User{Username: "system:kube-scheduler"}
	if got, err := authn.Components.Authenticate(bare().WithContext(authn.InProcess(context.Background(), user))); got != user || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := authn.Components.Authenticate(bare()); got != nil || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}
