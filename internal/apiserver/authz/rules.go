package authz

import (
	"context"
	"errors"

	authorizationv1 "k8s.io/api/authorization/v1"

	"skiff/internal/apiserver/authn"
)

// Rules list what a user may do in a namespace.
type Rules struct {
	Resources  []authorizationv1.ResourceRule
	Others     []authorizationv1.NonResourceRule // about paths that are no resources
	Incomplete bool                              // there may be more rules
}

// RulesAuthorizer is an authorizer that can list a user's rules.
type RulesAuthorizer interface {
	RulesFor(ctx context.Context, user *authn.User, namespace string) (Rules, error)
}

// RulesOf returns a user's rules of an authorizer in a namespace.
func RulesOf(ctx context.Context, a Authorizer, user *authn.User, namespace string) (Rules, error) {
	if a, ok := a.(RulesAuthorizer); ok {
		return a.RulesFor(ctx, user, namespace)
	}
	return Rules{Incomplete: true}, errors.New("the authorizer does not support user rule resolution")
}
