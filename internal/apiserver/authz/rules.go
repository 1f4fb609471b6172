package authz

import (
	"context"
	"errors"

	authorizationv1 "k8s.io/api/authorization/v1"

	"skiff/internal/apiserver/authn"
)

// Rules are what somebody may do in a namespace. Incomplete means that there may be more.
type Rules struct {
	Resources  []authorizationv1.ResourceRule
	Others     []authorizationv1.NonResourceRule
	Incomplete bool
}

// RulesAuthorizer is an authorizer that can list what a user may do.
type RulesAuthorizer interface {
	RulesFor(ctx context.Context, user *authn.User, namespace string) (Rules, error)
}

// RulesOf lists what an authorizer lets a user do in a namespace.
func RulesOf(ctx context.Context, a Authorizer, user *authn.User, namespace string) (Rules, error) {
	if a, ok := a.(RulesAuthorizer); ok {
		return a.RulesFor(ctx, user, namespace)
	}
	return Rules{Incomplete: true}, errors.New("the authorizer does not support user rule resolution")
}
