package abac

import (
	"context"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
)

// Authorizer allows what its policies allow. It never denies.
type Authorizer struct{ policies []spec }

var (
	_ authz.Authorizer      = (*Authorizer)(nil)
	_ authz.RulesAuthorizer = (*Authorizer)(nil)
)

// Name returns the name of the authorizer in reasons.
func (*Authorizer) Name() string { return "abac" }

// Authorize allows a request that a policy matches.
func (a *Authorizer) Authorize(_ context.Context, at *authz.Attributes) (authz.Decision, string, error) {
	for i := range a.policies {
		if a.policies[i].matches(at) {
			return authz.Allow, "", nil
		}
	}
	return authz.NoOpinion, "No policy matched.", nil
}

// RulesFor returns the rules of the policies for a user. As upstream, rules about paths are those of policies for the namespace.
func (a *Authorizer) RulesFor(_ context.Context, user *authn.User, namespace string) (authz.Rules, error) {
	var rules authz.Rules
	for i := range a.policies {
		p := &a.policies[i]
		if !p.matchesUser(user) || p.Namespace != wildcard && p.Namespace != namespace {
			continue
		}
		if p.Resource != "" {
			rules.Resources = append(rules.Resources, authorizationv1.ResourceRule{Verbs: p.verbs(), APIGroups: []string{p.APIGroup}, Resources: []string{p.Resource}})
		}
		if p.NonResourcePath != "" {
			rules.Others = append(rules.Others, authorizationv1.NonResourceRule{Verbs: p.verbs(), NonResourceURLs: []string{p.NonResourcePath}})
		}
	}
	return rules, nil
}

func (s *spec) verbs() []string {
	if s.Readonly {
		return []string{"get", "list", "watch"}
	}
	return []string{"*"}
}

func (s *spec) matches(a *authz.Attributes) bool {
	if !s.matchesUser(a.User) || s.Readonly && !readOnly(a.Verb) {
		return false
	}
	if !a.Resource {
		return s.matchesPath(a.Path)
	}
	return (s.Namespace == wildcard || s.Namespace == a.Namespace) && (s.Resource == wildcard || s.Resource == a.Plural) && (s.APIGroup == wildcard || s.APIGroup == a.Group)
}

// matchesUser reports whether the policy is for a user: both the user and the group that it names, if it does, must be right, and it must name one of them.
func (s *spec) matchesUser(user *authn.User) bool {
	if user == nil || s.User == "" && s.Group == "" {
		return false
	}
	return (s.User == "" || s.User == user.Username) && (s.Group == "" || slices.Contains(user.Groups, s.Group))
}

func readOnly(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }
