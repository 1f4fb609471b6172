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

// Name is how a chain calls it.
func (AlwaysAllow) Name() string { return "alwaysallow" }

// Authorize allows.
func (AlwaysAllow) Authorize(context.Context, *Attributes) (Decision, string, error) {
	return Allow, "", nil
}

// RulesFor is everything.
func (AlwaysAllow) RulesFor(context.Context, *authn.User, string) (Rules, error) {
	all := []string{"*"}
	return Rules{Resources: []authorizationv1.ResourceRule{{Verbs: all, APIGroups: all, Resources: all}},
		Others: []authorizationv1.NonResourceRule{{Verbs: all, NonResourceURLs: all}}}, nil
}

// AlwaysDeny allows nothing. Like all of Kubernetes' authorizers it leaves the last word to those after it.
type AlwaysDeny struct{}

// Name is how a chain calls it.
func (AlwaysDeny) Name() string { return "alwaysdeny" }

// Authorize does not allow.
func (AlwaysDeny) Authorize(context.Context, *Attributes) (Decision, string, error) {
	return NoOpinion, "Everything is forbidden.", nil
}

// RulesFor is nothing.
func (AlwaysDeny) RulesFor(context.Context, *authn.User, string) (Rules, error) { return Rules{}, nil }

// Masters allows everything to the members of system:masters, whatever the roles and bindings say: who has lost those can still get in.
type Masters struct{}

// Name is how a chain calls it.
func (Masters) Name() string { return "kubernetes.io/system-privileged-group" }

// Authorize allows the members of the group.
func (Masters) Authorize(_ context.Context, a *Attributes) (Decision, string, error) {
	if a.User == nil {
		return NoOpinion, "Error", errors.New("no user on request.") // in upstream's words
	}
	if slices.Contains(a.User.Groups, authn.SystemMasters) {
		return Allow, "", nil
	}
	return NoOpinion, "", nil
}

// RulesFor is nothing: what members of the group may do is listed by whoever comes next.
func (Masters) RulesFor(context.Context, *authn.User, string) (Rules, error) { return Rules{}, nil }
