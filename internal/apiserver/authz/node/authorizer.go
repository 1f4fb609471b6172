package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/authz/rbac"
	"skiff/internal/apiserver/objects"
)

// Authorizer allows kubelets what their nodes need. It never denies.
type Authorizer struct {
	read  objects.Reader
	index *index
	rules []rbacv1.PolicyRule
	own   map[schema.GroupResource]decision
}

var (
	_ authz.Authorizer      = (*Authorizer)(nil)
	_ authz.RulesAuthorizer = (*Authorizer)(nil)
)

// New returns an authorizer that follows the pods and volumes of reader. rules are what all nodes may do with resources that do not
// belong to one node or another.
func New(reader objects.Reader, rules []rbacv1.PolicyRule) *Authorizer {
	a := &Authorizer{read: reader, index: follow(reader), rules: rules}
	a.own = a.decisions()
	return a
}

// Name is how a chain calls it.
func (*Authorizer) Name() string { return "node" }

// identity is the node a user speaks for. A name that is only the prefix is a node that cannot be told.
func identity(user *authn.User) (node string, ok bool) {
	if user == nil || !slices.Contains(user.Groups, authn.SystemNodes) {
		return "", false
	}
	return strings.CutPrefix(user.Username, authn.NodeUser(""))
}

// Authorize decides about kubelets and has no opinion about others.
func (a *Authorizer) Authorize(_ context.Context, at *authz.Attributes) (authz.Decision, string, error) {
	node, ok := identity(at.User)
	if !ok {
		return authz.NoOpinion, "", nil
	}
	if node == "" {
		return authz.NoOpinion, fmt.Sprintf("unknown node for user %q", at.User.Username), nil
	}
	allowed, reason := a.decide(node, at)
	if allowed {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, reason, nil
}

func (a *Authorizer) decide(node string, at *authz.Attributes) (allowed bool, reason string) {
	if at.Resource {
		if decide := a.own[schema.GroupResource{Group: at.Group, Resource: at.Plural}]; decide != nil {
			return decide(node, at)
		}
	}
	return rbac.Allows(a.rules, at), ""
}

// RulesFor cannot list what a node may do, and has nothing for others.
func (a *Authorizer) RulesFor(_ context.Context, user *authn.User, _ string) (authz.Rules, error) {
	if _, ok := identity(user); ok {
		return authz.Rules{Incomplete: true}, errors.New("node authorizer does not support user rule resolution")
	}
	return authz.Rules{}, nil
}
