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
	objects    objects.Reader
	index      *index
	rules      []rbacv1.PolicyRule
	byResource map[schema.GroupResource]decision // for resources whose objects belong to single nodes
}

var (
	_ authz.Authorizer      = (*Authorizer)(nil)
	_ authz.RulesAuthorizer = (*Authorizer)(nil)
)

// New returns an authorizer that reads pods and volumes from reader. rules are those of all nodes, for resources whose objects do not belong
// to single nodes.
func New(reader objects.Reader, rules []rbacv1.PolicyRule) *Authorizer {
	a := &Authorizer{objects: reader, index: newIndex(reader), rules: rules}
	a.byResource = a.decisions()
	return a
}

// Name returns the name of the authorizer in reasons.
func (*Authorizer) Name() string { return "node" }

// identity returns the node name of a node's user, and whether the user is a node at all. A user name that is only the prefix has an empty node name.
func identity(user *authn.User) (node string, ok bool) {
	if user == nil || !slices.Contains(user.Groups, authn.SystemNodes) {
		return "", false
	}
	return strings.CutPrefix(user.Username, authn.NodeUser(""))
}

// Authorize decides about the requests of kubelets and has no opinion on others.
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
		if decide := a.byResource[schema.GroupResource{Group: at.Group, Resource: at.Plural}]; decide != nil {
			return decide(node, at)
		}
	}
	return rbac.Allows(a.rules, at), ""
}

// RulesFor returns an error for nodes, whose rules cannot be listed, and no rules for other users.
func (a *Authorizer) RulesFor(_ context.Context, user *authn.User, _ string) (authz.Rules, error) {
	if _, ok := identity(user); ok {
		return authz.Rules{Incomplete: true}, errors.New("node authorizer does not support user rule resolution")
	}
	return authz.Rules{}, nil
}
