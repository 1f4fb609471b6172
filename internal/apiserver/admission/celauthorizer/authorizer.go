package celauthorizer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
)

// UserInfo returns a user as CEL sees it.
func UserInfo(u *authn.User) user.Info {
	if u == nil {
		return &user.DefaultInfo{}
	}
	extra := make(map[string][]string, len(u.Extra))
	for k, v := range u.Extra {
		extra[k] = v
	}
	return &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra}
}

// Authorizer asks the server's authorizer each question of a request once. It may be used by one goroutine at a time.
type Authorizer struct {
	authorizer authz.Authorizer
	decisions  map[question]decision
}

// question is a question without its user, and the user as text.
type question struct {
	authz.Attributes
	user string
}

type decision struct {
	authorizer.Decision
	reason string
	err    error
}

// New returns the authorizer for the expressions of one request.
func New(a authz.Authorizer) *Authorizer {
	return &Authorizer{a, map[question]decision{}}
}

// Authorize implements the authorizer that CEL's authorizer library asks.
func (c *Authorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	q := question{user: userText(a.GetUser()), Attributes: authz.Attributes{Verb: a.GetVerb(), Resource: a.IsResourceRequest(), Group: a.GetAPIGroup(),
		Version: a.GetAPIVersion(), Plural: a.GetResource(), Subresource: a.GetSubresource(), Namespace: a.GetNamespace(), Name: a.GetName(), Path: a.GetPath(),
		FieldSelector: fieldSelector(a), LabelSelector: labelSelector(a)}}
	if known, ok := c.decisions[q]; ok {
		return known.Decision, known.reason, known.err
	}
	asked := q.Attributes
	asked.User = userOf(a.GetUser())
	made, reason, err := c.authorizer.Authorize(ctx, &asked)
	d := decision{authorizer.DecisionNoOpinion, reason, err}
	switch made {
	case authz.Allow:
		d.Decision = authorizer.DecisionAllow
	case authz.Deny:
		d.Decision = authorizer.DecisionDeny
	}
	c.decisions[q] = d
	return d.Decision, d.reason, d.err
}

// fieldSelector returns a field selector as text. One that cannot be parsed narrows nothing, so that it is left out.
func fieldSelector(a authorizer.Attributes) string {
	requirements, err := a.GetFieldSelector()
	if err != nil {
		return ""
	}
	terms := make([]string, len(requirements))
	for i, r := range requirements {
		terms[i] = r.Field + string(r.Operator) + fields.EscapeValue(r.Value)
	}
	return strings.Join(terms, ",")
}

func labelSelector(a authorizer.Attributes) string {
	requirements, err := a.GetLabelSelector()
	if err != nil || len(requirements) == 0 {
		return ""
	}
	return labels.NewSelector().Add(requirements...).String()
}

func userOf(u user.Info) *authn.User {
	if u == nil {
		return nil
	}
	extra := make(map[string]authenticationv1.ExtraValue, len(u.GetExtra()))
	for k, v := range u.GetExtra() {
		extra[k] = v
	}
	return &authn.User{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra}
}

func userText(u user.Info) string {
	if u == nil {
		return ""
	}
	groups := slices.Sorted(slices.Values(u.GetGroups()))
	return fmt.Sprintf("%q %q %q %q", u.GetName(), u.GetUID(), groups, u.GetExtra()) // maps print sorted
}
