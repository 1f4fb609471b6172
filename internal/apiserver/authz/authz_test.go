package authz

import (
	"context"
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/google/go-cmp/cmp"

	"skiff/internal/apiserver/authn"
)

// member is an authorizer with a fixed decision.
type member struct {
	name     string
	decision Decision
	reason   string
	err      error
	calls    int
}

func (m *member) Name() string { return m.name }

func (m *member) Authorize(context.Context, *Attributes) (Decision, string, error) {
	m.calls++
	return m.decision, m.reason, m.err
}

func (m *member) RulesFor(context.Context, *authn.User, string) (Rules, error) {
	return Rules{Resources: []authorizationv1.ResourceRule{{Verbs: []string{m.name}}}, Incomplete: m.err != nil}, m.err
}

func TestChainTakesTheFirstOpinion(t *testing.T) {
	boom, bang := errors.New("boom"), errors.New("bang")
	for _, test := range []struct {
		name     string
		chain    []*member
		decision Decision
		reason   string
		err      string
		calls    []int
	}{
		{name: "empty chain", decision: NoOpinion},
		{name: "allow", chain: []*member{{name: "a"}, {name: "b", decision: Allow, reason: "because"}, {name: "c"}},
			decision: Allow, reason: "because", calls: []int{1, 1, 0}},
		{name: "deny", chain: []*member{{name: "a", decision: Deny, reason: "no", err: boom}, {name: "b", decision: Allow}},
			decision: Deny, reason: "no", err: "boom", calls: []int{1, 0}},
		{name: "an earlier error is forgotten", chain: []*member{{name: "a", err: boom}, {name: "b", decision: Allow}}, decision: Allow, calls: []int{1, 1}},
		{name: "no opinion, all reasons", chain: []*member{{name: "a", reason: "x", err: boom}, {name: "b"}, {name: "c", reason: "y", err: bang}},
			reason: "a: x\nc: y", err: "[boom, bang]", calls: []int{1, 1, 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var chain Chain
			for _, m := range test.chain {
				chain = append(chain, m)
			}
			decision, reason, err := chain.Authorize(t.Context(), &Attributes{})
			if decision != test.decision || reason != test.reason || text(err) != test.err {
				t.Errorf("got %v %q %v", decision, reason, err)
			}
			for i, m := range test.chain {
				if m.calls != test.calls[i] {
					t.Errorf("%s was called %d times", m.name, m.calls)
				}
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

type unnamed struct{}

func (unnamed) Authorize(context.Context, *Attributes) (Decision, string, error) {
	return NoOpinion, "silent", nil
}

func TestChainConcatenatesRules(t *testing.T) {
	rules, err := Chain{Masters{}, &member{name: "a"}, unnamed{}, &member{name: "b"}, AlwaysDeny{}}.RulesFor(t.Context(), &authn.User{}, "ns")
	want := Rules{Resources: []authorizationv1.ResourceRule{{Verbs: []string{"a"}}, {Verbs: []string{"b"}}}, Incomplete: true}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Error(diff)
	}
	if text(err) != "the authorizer does not support user rule resolution" {
		t.Error(err)
	}
	if _, reason, _ := (Chain{unnamed{}}).Authorize(t.Context(), &Attributes{}); reason != "silent" {
		t.Errorf("a member without a name: %q", reason)
	}
}

func TestMastersMayDoEverythingInAnyMode(t *testing.T) {
	chain := Chain{Masters{}, AlwaysDeny{}}
	for _, test := range []struct {
		user     *authenticationv1.UserInfo
		decision Decision
		reason   string
		err      string
	}{
		{&authn.User{Username: "x", Groups: []string{"y", "system:masters"}}, Allow, "", ""},
		{&authn.User{Username: "system:masters"}, NoOpinion, "alwaysdeny: Everything is forbidden.", ""},
		{nil, NoOpinion, "kubernetes.io/system-privileged-group: Error\nalwaysdeny: Everything is forbidden.", "no user on request."},
	} {
		decision, reason, err := chain.Authorize(t.Context(), &Attributes{User: test.user})
		if decision != test.decision || reason != test.reason || text(err) != test.err {
			t.Errorf("%v: %v %q %v", test.user, decision, reason, err)
		}
	}
}
