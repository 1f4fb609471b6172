package signerauthz_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"skiff/internal/apiserver/admission/signerauthz"
	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
)

// recordingAuthorizer allows by name and records the attributes it was called with.
type recordingAuthorizer struct {
	allowed map[string]bool
	err     error
	calls   []authz.Attributes
}

func (r *recordingAuthorizer) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	r.calls = append(r.calls, *a)
	if r.allowed[a.Name] {
		return authz.Allow, "", r.err
	}
	return authz.NoOpinion, "", r.err
}

func TestAllowed(t *testing.T) {
	user := &authn.User{Username: "jane"}
	for _, c := range []struct {
		name, signer string
		allowed      string
		err          error
		want         bool
		names        []string
	}{
		{"the signer itself", "example.com/one", "example.com/one", nil, true, []string{"example.com/one"}},
		{"all signers of the domain", "example.com/one", "example.com/*", nil, true, []string{"example.com/one", "example.com/*"}},
		{"another signer", "example.com/one", "example.com/two", nil, false, []string{"example.com/one", "example.com/*"}},
		{"the domain is what comes before the first slash", "example.com/one/two", "example.com/*", nil, true, []string{"example.com/one/two", "example.com/*"}},
		{"an authorizer that fails", "example.com/one", "example.com/one", errors.New("no answer"), false, []string{"example.com/one", "example.com/*"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			authorizer := &recordingAuthorizer{allowed: map[string]bool{c.allowed: true}, err: c.err}
			if got := signerauthz.Allowed(t.Context(), authorizer, user, "sign", c.signer); got != c.want {
				t.Errorf("allowed is %t", got)
			}
			var names []string
			for _, a := range authorizer.calls {
				names = append(names, a.Name)
				a.Name = ""
				if want := (authz.Attributes{User: user, Verb: "sign", Resource: true, Group: "certificates.k8s.io", Version: "*", Plural: "signers"}); a != want {
					t.Errorf("called with %+v, want %+v", a, want)
				}
			}
			if !slices.Equal(names, c.names) {
				t.Errorf("called with %v, want %v", names, c.names)
			}
		})
	}
}
