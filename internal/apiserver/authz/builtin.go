package authz

import (
	"context"
	"errors"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"

	"skiff/internal/apiserver/authn"
)

// AlwaysAllow allows everything.
type AlwaysAllow struct{}

// Name returns the name of the authorizer in reasons.
func (AlwaysAllow) Name() string { return "alwaysallow" }

// Authorize allows every request.
func (AlwaysAllow) Authorize(context.Context, *Attributes) (Decision, string, error) {
	return Allow, "", nil
}

// RulesFor returns rules that allow everything.
func (AlwaysAllow) RulesFor(context.Context, *authn.User, string) (Rules, error) {
	all := []string{"*"}
	return Rules{Resources: []authorizationv1.ResourceRule{{Verbs: all, APIGroups: all, Resources: all}},
		Others: []authorizationv1.NonResourceRule{{Verbs: all, NonResourceURLs: all}}}, nil
}

// AlwaysDeny allows nothing. Like all of Kubernetes' authorizers it has no opinion rather than denying, so that later members can allow.
type AlwaysDeny struct{}

// Name returns the name of the authorizer in reasons.
func (AlwaysDeny) Name() string { return "alwaysdeny" }

// Authorize has no opinion on any request.
func (AlwaysDeny) Authorize(context.Context, *Attributes) (Decision, string, error) {
	return NoOpinion, "Everything is forbidden.", nil
}

// RulesFor returns no rules.
func (AlwaysDeny) RulesFor(context.Context, *authn.User, string) (Rules, error) { return Rules{}, nil }

// Masters allows everything to the members of system:masters, so that an administrator can repair broken roles and bindings.
type Masters struct{}

// Name returns the name of the authorizer in reasons.
func (Masters) Name() string { return "kubernetes.io/system-privileged-group" }

// Authorize allows the members of the group.
func (Masters) Authorize(_ context.Context, a *Attributes) (Decision, string, error) {
	if a.User == nil {
		return NoOpinion, "Error", errors.New("no user on request.") // upstream's text
	}
	if slices.Contains(a.User.Groups, authn.SystemMasters) {
		return Allow, "", nil
	}
	return NoOpinion, "", nil
}

// RulesFor returns no rules: the role cluster-admin lists those of the group.
func (Masters) RulesFor(context.Context, *authn.User, string) (Rules, error) { return Rules{}, nil }
